// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"

namespace openmana::rnic {

// What goes wrong with a queue pair, or holds it up: rare.
#define OM_RNIC_EVENT_COUNTERS(X)                                                                  \
    X(timeouts, "rnic.requester.timeouts", "local ACK timeouts")                                   \
    X(oos_naks, "rnic.requester.sequence_naks", "NAKs for a sequence error received")              \
    X(rnr_naks, "rnic.requester.rnr_naks", "RNR NAKs received")                                    \
    X(rnr_naks_sent, "rnic.responder.rnr_naks", "RNR NAKs sent")                                   \
    X(receive_waits, "rnic.responder.receive_waits", "messages that waited for their receive")     \
    X(out_of_sequence, "rnic.responder.out_of_sequence", "requests ahead of the expected PSN")     \
    X(duplicates, "rnic.responder.duplicates", "requests behind the expected PSN")                 \
    X(implicit_naks, "rnic.requester.implicit_naks", "answers that skipped a READ response")       \
    X(read_psn_mismatches, "rnic.requester.read_psn_mismatches",                                   \
      "READ responses outside of what was asked for")                                              \
    X(nak_invalid_request, "rnic.requester.nak_invalid_request",                                   \
      "NAKs for an invalid request received")                                                      \
    X(nak_access, "rnic.requester.nak_access", "NAKs for a remote access error received")          \
    X(nak_operation, "rnic.requester.nak_operation", "NAKs for a remote operation error received") \
    X(receive_too_long, "rnic.responder.too_long", "messages longer than their receive buffer")    \
    X(send_protection, "rnic.requester.protection_errors", "SGEs of the requester refused")        \
    X(remote_access, "rnic.responder.access_errors", "requests refused for their rkey or rights")  \
    X(receive_qp_errors, "rnic.responder.operation_errors",                                        \
      "receive buffers that could not be used")                                                    \
    X(malformed_receives, "rnic.responder.malformed_wqes", "receive WQEs that make no sense")      \
    X(rnr_exceeded, "rnic.requester.rnr_retries_exceeded",                                         \
      "QPs failed because the peer had no receive")                                                \
    X(retries_exceeded, "rnic.requester.retries_exceeded",                                         \
      "QPs failed because the peer did not answer")                                                \
    X(fatal_errors, "rnic.qp.errors", "QPs that moved to ERR by themselves")                       \
    X(cnps, "rnic.cnp.received", "congestion notifications received")                              \
    X(rate_cuts, "rnic.rate.cuts", "times that congestion control lowered the rate of a QP")       \
    X(rate_increases, "rnic.rate.increases", "times that it raised one again")                     \
    X(rate_recoveries, "rnic.rate.recoveries", "QPs that are back at line rate")                   \
    X(retransmits, "rnic.requester.retransmits", "times that a requester went back")               \
    X(credit_waits, "rnic.requester.credit_waits",                                                 \
      "times that a send waited for credits of the peer")

// What it moves: counted with each message.
#define OM_RNIC_TRAFFIC_COUNTERS(X)                                                \
    X(tx_bytes, "rnic.tx.bytes", "payload bytes sent")                             \
    X(rx_bytes, "rnic.rx.bytes", "payload bytes received")                         \
    X(rx_sends, "rnic.rx.sends", "SENDs executed")                                 \
    X(rx_writes, "rnic.rx.writes", "WRITEs executed")                              \
    X(rx_reads, "rnic.rx.reads", "READs executed")                                 \
    X(tx_packets, "rnic.tx.packets", "packets sent, or that the local path saved") \
    X(rx_packets, "rnic.rx.packets", "packets received, or that the local path saved")

// Of a port. What the guest can read (RNIC 2.11) is in the first two parts, which each queue pair
// has as well; the rest names what was dropped and why.
#define OM_RNIC_COUNTERS(X)                                                                        \
    OM_RNIC_EVENT_COUNTERS(X)                                                                      \
    OM_RNIC_TRAFFIC_COUNTERS(X)                                                                    \
    X(malformed_sends, "rnic.requester.malformed_wqes", "send WQEs that make no sense")            \
    X(cnps_ignored, "rnic.cnp.ignored", "congestion notifications for no QP that could slow down") \
    X(cnps_sent, "rnic.cnp.sent", "congestion notifications sent")                                 \
    X(ecn_marked, "rnic.ecn.received", "packets received with a congestion mark")                  \
    X(rx_atomics, "rnic.rx.atomics", "atomics executed")                                           \
    X(tx_frames, "rnic.tx.frames", "frames sent")                                                  \
    X(rx_frames, "rnic.rx.frames", "frames received")                                              \
    X(local_visits, "rnic.local.visits", "steps on the local path")                                \
    X(waiting_packets, "rnic.wait.packets",                                                        \
      "packets kept since their message, or one before it, waited for its receive")                \
    X(drop_waiting, "rnic.wait.dropped",                                                           \
      "kept packets that were dropped: no receive came in time, or the queue pair ended")          \
    X(unexpected_acks, "rnic.requester.unexpected_acks", "answers to what is not outstanding")     \
    X(armed_cqes, "rnic.cqe.armed", "armed completions written")                                   \
    X(error_cqes, "rnic.cqe.errors", "error completions written")                                  \
    X(fatal_events, "rnic.qp.fatal_events", "QP-fatal events sent")                                \
    X(events, "rnic.ext.events", "events of the extension sent")                                   \
    X(bad_doorbell, "rnic.doorbell.invalid", "doorbells with an impossible position")              \
    X(rx_overflow, "rnic.drop.backlog", "frames dropped because too many were waiting")            \
    X(drop_not_roce, "rnic.drop.not_roce", "frames that are not RoCEv2")                           \
    X(drop_malformed, "rnic.drop.malformed", "frames with broken headers")                         \
    X(drop_icrc, "rnic.drop.icrc", "frames with a wrong ICRC")                                     \
    X(drop_opcode, "rnic.drop.opcode",                                                             \
      "packets with an opcode or version that has no meaning here")                                \
    X(drop_qpn, "rnic.drop.qpn", "packets for a QP that does not exist or is of another type")     \
    X(drop_state, "rnic.drop.state", "packets for a QP whose state does not take them")            \
    X(drop_address, "rnic.drop.address", "packets from or to an address that is not the QP's")     \
    X(drop_pkey, "rnic.drop.pkey", "packets of another partition")                                 \
    X(drop_qkey, "rnic.drop.qkey", "datagrams with a wrong Q_Key")                                 \
    X(drop_no_receive, "rnic.drop.no_receive", "datagrams without a usable receive buffer")        \
    X(drop_length, "rnic.drop.length", "datagrams longer than the port's MTU")                     \
    X(drop_owed, "rnic.drop.owed",                                                                 \
      "READs and atomics dropped: the peer is owed as many answers as are remembered")             \
    X(drop_unreliable, "rnic.drop.unreliable",                                                     \
      "UC packets dropped: out of sequence, refused, or without a receive")                        \
    X(cq_overruns, "rnic.cq.overruns", "CQs that failed because they were full")                   \
    X(bad_records, "rnic.record.invalid", "doorbell records with an impossible index")             \
    X(record_posts, "rnic.record.posts", "times that sends were found without a doorbell")         \
    X(held_back, "rnic.qp.held_back",                                                              \
      "times that a QP waited for room in the queue of its NIC's rate limit")                      \
    X(drop_source, "rnic.drop.source",                                                             \
      "messages and answers not sent: their source address is not ours, or another NIC serves it") \
    X(drop_foreign_source, "rnic.drop.foreign_source",                                             \
      "datagrams of a program that were not sent: their source address was not granted to it")     \
    X(drop_datagram, "rnic.drop.datagram",                                                         \
      "datagrams not sent: too long, or a buffer that cannot be read")

OM_COUNTERS(RnicCounters, OM_RNIC_COUNTERS);

/// Of one queue pair, from its creation to its end. Any thread may raise and read them.
struct QpEvents {
    OM_RNIC_EVENT_COUNTERS(OM_COUNTER_FIELD)
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
#define OM_QP_EVENT_STATE(field, name, help) a(self.field);
        OM_RNIC_EVENT_COUNTERS(OM_QP_EVENT_STATE)
#undef OM_QP_EVENT_STATE
    }
};

/// Of one side of a queue pair, as a part of what a message touches anyway: so they belong to those
/// to whom the side belongs, and cost an addition.
struct QpTraffic {
#define OM_QP_TRAFFIC_FIELD(field, name, help) std::uint64_t field = 0;
    OM_RNIC_TRAFFIC_COUNTERS(OM_QP_TRAFFIC_FIELD)
#undef OM_QP_TRAFFIC_FIELD
    template <typename Archive, typename Self>
    static void fields(Archive& a, Self& self) {
#define OM_QP_FIELD_STATE(field, name, help) a(self.field);
        OM_RNIC_TRAFFIC_COUNTERS(OM_QP_FIELD_STATE)
#undef OM_QP_FIELD_STATE
    }
};

/// Counts something for the port and, in the same place, for the queue pair that it happened to.
inline void tally(base::Counter& port, base::Counter& own, std::uint64_t n = 1) {
    port.add(n);
    own.add(n);
}
inline void tally(base::Counter& port, std::uint64_t& own, std::uint64_t n = 1) {
    port.add(n);
    own += n;
}

}  // namespace openmana::rnic
