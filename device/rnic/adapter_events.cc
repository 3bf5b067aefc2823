// SPDX-License-Identifier: Apache-2.0
#include "rnic/adapter_events.h"

#include <mana/ext.h>

#include <iterator>

namespace openmana::rnic {
namespace {

constexpr std::uint32_t kNumbersOfQp[] = {
    0,  // of the stock ABI
    MANA_HW_EXT_EVENT_QP_FATAL,
    MANA_HW_EXT_EVENT_QP_REQUEST_ERROR,
    MANA_HW_EXT_EVENT_QP_ACCESS_ERROR,
    MANA_HW_EXT_EVENT_COMMUNICATION_ESTABLISHED,
    MANA_HW_EXT_EVENT_SQ_DRAINED,
    MANA_HW_EXT_EVENT_LAST_WQE_REACHED,
};
constexpr std::uint32_t kNumbersOfCq[] = {MANA_HW_EXT_EVENT_CQ_ERROR};
constexpr std::uint32_t kNumbersOfSrq[] = {MANA_HW_EXT_EVENT_SRQ_ERROR,
                                           MANA_HW_EXT_EVENT_SRQ_LIMIT};
static_assert(std::size(kNumbersOfQp) == AdapterEvents::kOfQp &&
              std::size(kNumbersOfSrq) == AdapterEvents::kOfSrq);

}  // namespace

void AdapterEvents::qp_fatal(roce::Qpn qpn) {
    counters_.fatal_events.add();
    if (eq_) eq_->post(gdma::EqeType::kQpFatal, {qpn.value(), 0, 0});
}

void AdapterEvents::extension(std::uint32_t id, std::uint32_t number) {
    counters_.events.add();
    if (eq_) eq_->post(gdma::EqeType::kQpFatal, {id, MANA_HW_EXT_EVENT_MARK | number, 0});
}

void AdapterEvents::forget(std::uint32_t id, std::span<const std::uint32_t> numbers) {
    if (!eq_) return;
    for (const std::uint32_t number : numbers)
        eq_->forget(gdma::EqeType::kQpFatal, id, MANA_HW_EXT_EVENT_MARK | number);
}

void AdapterEvents::forget_qp(roce::Qpn qpn) {
    forget(qpn.value(), kNumbersOfQp);
}
void AdapterEvents::forget_cq(std::uint32_t id) {
    forget(id, kNumbersOfCq);
}
void AdapterEvents::forget_srq(std::uint32_t id) {
    forget(id, kNumbersOfSrq);
}

}  // namespace openmana::rnic
