// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace openmana::base {

/// A count that any thread may raise and any thread may read.
class Counter {
public:
    void add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
    [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::uint64_t> value_{0};
};

struct CounterInfo {
    const char* name;  ///< layer.object.event
    const char* help;  ///< one line
};

}  // namespace openmana::base

// A layer lists its counters once, as X(field, "layer.object.event", "explanation"), and gets with
// OM_COUNTERS(Type, LIST) a struct with one Counter per line, its table `kInfo`, and `visit(f)`,
// which calls f(const CounterInfo&, uint64_t value) for each line in order.
#define OM_COUNTER_FIELD(field, name, help) ::openmana::base::Counter field;
#define OM_COUNTER_INFO(field, name, help) ::openmana::base::CounterInfo{name, help},
#define OM_COUNTER_VISIT(field, name, help) \
    f(::openmana::base::CounterInfo{name, help}, field.value());
#define OM_COUNTER_EACH(field, name, help) f(::openmana::base::CounterInfo{name, help}, field);
#define OM_COUNTERS(Type, LIST)                                                           \
    struct Type {                                                                         \
        LIST(OM_COUNTER_FIELD)                                                            \
        static constexpr ::openmana::base::CounterInfo kInfo[] = {LIST(OM_COUNTER_INFO)}; \
        template <typename F>                                                             \
        void visit(F&& f) const {                                                         \
            LIST(OM_COUNTER_VISIT)                                                        \
        }                                                                                 \
        template <typename F>                                                             \
        void each(F&& f) {                                                                \
            LIST(OM_COUNTER_EACH)                                                         \
        }                                                                                 \
    }
