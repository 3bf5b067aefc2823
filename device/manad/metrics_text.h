// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/histogram.h"

namespace openmana::manad {

/// Figures as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0. A family stands
/// together with its type and its explanation, whoever has added its figures when.
class MetricsText {
public:
    enum class Type : std::uint8_t { kCounter, kGauge, kHistogram };
    using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

    /// `name` of a counter is without "_total". One name has one type.
    void add(std::string_view name, Type type, std::string_view help, Labels labels, double value);
    void add(std::string_view name, Type type, std::string_view help, Labels labels,
             std::uint64_t value);
    /// A histogram, of whose values `per_unit` are one of what the name says.
    void add(std::string_view name, std::string_view help, Labels labels,
             const base::HistogramReading& reading, double per_unit);
    [[nodiscard]] std::string prometheus() const { return write(false); }
    [[nodiscard]] std::string open_metrics() const { return write(true); }

    /// "rnic.tx.bytes" as "manad_rnic_tx_bytes".
    [[nodiscard]] static std::string name_of(std::string_view counter);

private:
    struct Family {
        Type type;
        std::string help;
        std::string samples;  ///< a line each
    };
    [[nodiscard]] Family& family(std::string_view name, Type type, std::string_view help);
    template <typename Value>
    void add_sample(std::string_view name, Type type, std::string_view help, Labels labels,
                    Value value);
    [[nodiscard]] std::string write(bool open) const;

    std::map<std::string, Family, std::less<>> families_;
};

}  // namespace openmana::manad
