// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"
#include "base/gate.h"
#include "base/guest_memory.h"
#include "base/memory_account.h"
#include "gdma/config.h"
#include "gdma/cq_table.h"
#include "gdma/device_memory.h"
#include "gdma/doorbell_pages.h"
#include "gdma/eq_table.h"
#include "gdma/id_pool.h"
#include "gdma/key_changes.h"
#include "gdma/memory_table.h"
#include "gdma/pd_table.h"
#include "gdma/region_table.h"
#include "gdma/work_queues.h"
#include "pci/function_model.h"

namespace openmana::gdma {

/// All that the guest and the devices of a function have, each kind in its table. The executor's,
/// but for the keys, which visitors look up: these change under an exclusion of the gate.
struct Tables {
    Tables(base::Executor& executor, const FunctionConfig& config, base::Gate& the_gate,
           base::GuestMemory& memory, pci::IrqSink& irq)
        : gate(the_gate),
          account(config.max_memory),
          pds(config.max_pds, handles, account),
          pages(config.doorbell_pages),
          regions({config.max_regions, config.max_region_pages}, handles, account),
          device_memory(config.max_device_memory, handles, account, gate, memory),
          keys(gate, memory, account, config.max_mrs, base::Random(config.seed).next()),
          key_changes(gate, memory, keys, regions, pds),
          eqs(memory, irq, account, config.max_eqs),
          cqs(executor, gate, memory, account, config.max_cqs),
          sqs(account, config.max_sqs),
          rqs(account, config.max_rqs, base::Random(~config.seed).next()) {}

    base::Gate& gate;
    base::MemoryAccount account;  ///< of the devices, too
    HandleNumbers handles;
    PdTable pds;
    DoorbellPages pages;
    RegionTable regions;
    DeviceMemoryTable device_memory;
    MemoryTable keys;
    KeyChanges key_changes;
    EqTable eqs;
    CqTable cqs;
    SendQueues sqs;
    ReceiveQueues rqs;

    /// The clients, the devices and the HWC have let go of what they held: visitors find nothing
    /// but keys.
    void reset() {
        keys.clear();
        key_changes.reset();
        const base::Gate::Recess recess(gate);
        cqs.reset();
        eqs.reset();
        sqs.reset();
        rqs.reset();
        regions.reset();
        device_memory.reset();
        pds.reset();
        pages.reset();
    }
    void save(base::StateWriter& out) const {
        out.begin("TABL", 1);
        out(handles, key_changes);
        pages.save(out);
        pds.save(out);
        regions.save(out);
        device_memory.save(out);
        keys.save(out);
        eqs.save(out);
        cqs.save(out);
        sqs.save(out);
        rqs.save(out);
        out.end();
    }
    /// Into empty ones.
    void load(base::StateReader& in) {
        in.begin("TABL", 1);
        in(handles, key_changes);
        pages.load(in);
        pds.load(in);
        regions.load(in);
        device_memory.load(in);
        if (in.ok()) keys.load(in, pds, device_memory);
        eqs.load(in, pages);
        cqs.load(in, pages, eqs);
        sqs.load(in);
        rqs.load(in);
        in.end();
    }
    /// All who were to take of these what is theirs have done so.
    void finish_load(base::StateReader& in) {
        in.require(sqs.all_adopted() && rqs.all_adopted(), "ids of a queue that there is not");
        eqs.finish_load(in);
        cqs.drop_restored();
    }
    [[nodiscard]] ObjectCounts counts() const {
        ObjectCounts counts;
        counts.eqs = eqs.used();
        counts.cqs = cqs.used();
        counts.sqs = sqs.used();
        counts.rqs = rqs.used();
        counts.pds = pds.used();
        counts.keys = keys.size();
        counts.regions = regions.size();
        counts.region_pages = regions.pages();
        counts.device_memories = device_memory.size();
        counts.device_memory_bytes = device_memory.bytes();
        counts.doorbell_pages = pages.used();
        return counts;
    }
};

}  // namespace openmana::gdma
