// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace openmana::manad {

/// Figures as Prometheus reads them: its text format 0.0.4, or OpenMetrics 1.0. A family stands
/// together with its type and its explanation, whoever has added its figures when.
class MetricsText {
public:
    enum class Type : std::uint8_t { kCounter, kGauge };
    using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

    /// `name` of a counter is without "_total". One name has one type.
    void add(std::string_view name, Type type, std::string_view help, Labels labels, double value);
    void add(std::string_view name, Type type, std::string_view help, Labels labels,
             std::uint64_t value);
    [[nodiscard]] std::string prometheus() const { return write(false); }
    [[nodiscard]] std::string open_metrics() const { return write(true); }

    /// "rnic.tx.bytes" as "manad_rnic_tx_bytes".
    [[nodiscard]] static std::string name_of(std::string_view counter);

private:
    struct Family {
        Type type;
        std::string help;
        std::vector<std::pair<std::string, std::string>> samples;  ///< labels in braces, and value
    };
    void add_text(std::string_view name, Type type, std::string_view help, Labels labels,
                  std::string value);
    [[nodiscard]] std::string write(bool open) const;

    std::map<std::string, Family, std::less<>> families_;
};

}  // namespace openmana::manad
