// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/counters.h"

namespace openmana::pci {

#define OM_PCI_COUNTERS(X)                                                                      \
    X(irq_sent, "pci.irq.sent", "interrupts signalled to the client")                           \
    X(irq_pended, "pci.irq.pended",                                                             \
      "interrupts kept because the vector had no eventfd or might not be sent")                 \
    X(irq_failed, "pci.irq.failed", "interrupts that the eventfd did not take")                 \
    X(irq_left, "pci.irq.left",                                                                 \
      "vectors that are raised by the NIC's thread alone: signals to their eventfds took long") \
    X(irq_ignored, "pci.irq.ignored", "interrupts for a vector that does not exist")            \
    X(eventfd_refused, "pci.irq.eventfd_refused",                                               \
      "descriptors refused because they are no eventfds")                                       \
    X(dma_mapped, "pci.dma.mapped", "DMA ranges mapped")                                        \
    X(dma_unmapped, "pci.dma.unmapped", "DMA unmap requests carried out")                       \
    X(dma_refused, "pci.dma.refused", "DMA map and unmap requests refused")                     \
    X(dma_not_memory, "pci.dma.not_memory",                                                     \
      "DMA maps refused: the file is neither memfd, tmpfs nor hugetlbfs")                       \
    X(dma_lost, "pci.dma.lost",                                                                 \
      "times that memory of the client had gone away: the client was dropped")                  \
    X(writes_stopped, "pci.bar0.stopped",                                                       \
      "writes to BAR0 that were not done, for the device was stopped to move")                  \
    X(resets, "pci.function.resets", "resets by the client: at machine reset and when it goes") \
    X(flrs, "pci.function.flrs", "function-level resets by the guest")

OM_COUNTERS(Counters, OM_PCI_COUNTERS);

}  // namespace openmana::pci
