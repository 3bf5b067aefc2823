// SPDX-License-Identifier: Apache-2.0
#pragma once

#define SDT_USE_VARIADIC 1
#include <sys/sdt.h>

/// A place that a tracer can look at while the program runs (USDT, provider `openmana`;
/// docs/monitoring.md lists them). Nobody looks: one instruction that does nothing. The arguments
/// are numbers and pointers that are at hand anyway: they are computed in any case.
#define OM_PROBE(name, ...) STAP_PROBEV(openmana, name __VA_OPT__(, ) __VA_ARGS__)
