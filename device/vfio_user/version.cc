// SPDX-License-Identifier: Apache-2.0
#include "vfio_user/version.h"

#include <nlohmann/json.hpp>

namespace openmana::vfio_user {

using base::ErrorCode;
using base::fail;
using base::Result;
using nlohmann::json;

namespace {

/// QEMU sends some 300 bytes; the limit keeps what a client can make the parser allocate small.
constexpr std::size_t kMaxText = 16384;

Result<void> read_number(const json& object, const char* name, std::uint64_t& value) {
    const auto found = object.find(name);
    if (found == object.end()) return {};
    if (!found->is_number_unsigned())
        return fail(ErrorCode::kInvalidArgument, "capability is not a number");
    value = found->get<std::uint64_t>();
    return {};
}

}  // namespace

Result<Capabilities> parse_capabilities(std::span<const std::byte> text) {
    Capabilities result;
    if (text.empty()) return result;
    if (text.size() > kMaxText)
        return fail(ErrorCode::kInvalidArgument, "version data too long", text.size());
    if (text.back() != std::byte{0})
        return fail(ErrorCode::kInvalidArgument, "version data without NUL");
    const auto* first = reinterpret_cast<const char*>(text.data());
    const json document = json::parse(first, first + text.size() - 1, nullptr, false);
    if (!document.is_object())
        return fail(ErrorCode::kInvalidArgument, "version data is not a JSON object");
    const auto found = document.find("capabilities");
    if (found == document.end()) return result;
    if (!found->is_object())
        return fail(ErrorCode::kInvalidArgument, "capabilities are not an object");
    TRY_VOID(read_number(*found, "max_msg_fds", result.max_msg_fds));
    TRY_VOID(read_number(*found, "max_data_xfer_size", result.max_data_xfer_size));
    if (const auto flag = found->find("write_multiple"); flag != found->end()) {
        if (!flag->is_boolean())
            return fail(ErrorCode::kInvalidArgument, "capability is not a boolean");
        result.write_multiple = flag->get<bool>();
    }
    return result;
}

std::string format_capabilities(const Capabilities& capabilities) {
    json list = {{"max_msg_fds", capabilities.max_msg_fds},
                 {"max_data_xfer_size", capabilities.max_data_xfer_size}};
    if (capabilities.write_multiple) list["write_multiple"] = true;
    return json{{"capabilities", list}}.dump();
}

}  // namespace openmana::vfio_user
