// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tl/expected.hpp>

namespace openmana::base {

/// What went wrong, in words that a program can branch on. The text is for the one who reads the
/// log.
enum class ErrorCode : std::uint8_t {
    kInvalidArgument,  ///< a value that the interface does not allow
    kOutOfRange,       ///< an index, offset or length outside its object
    kNotFound,         ///< an id, key or address that names nothing
    kPermission,       ///< the object exists but this caller may not use it so
    kExhausted,        ///< a quota or table is full
    kBusy,             ///< the object is in use
    kUnsupported,      ///< known, but not offered
    kProtocol,         ///< the other side broke the rules of the protocol
    kIo,               ///< the operating system refused; `detail` is errno
    kClosed,           ///< the other side is gone
};

/// An error: a code, a static text, and up to two numbers. Never allocates; `text` has static
/// storage.
struct Error {
    ErrorCode code = ErrorCode::kInvalidArgument;
    const char* text = "";
    std::uint64_t detail = 0;
    std::uint64_t detail2 = 0;
};

template <typename T>
using Result = tl::expected<T, Error>;

/// Builds the error side of a Result: `return fail(ErrorCode::kNotFound, "no such key", key);`
inline tl::unexpected<Error> fail(ErrorCode code, const char* text, std::uint64_t detail = 0,
                                  std::uint64_t detail2 = 0) {
    return tl::unexpected<Error>(Error{code, text, detail, detail2});
}

[[noreturn]] inline void check_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "check failed: %s at %s:%d\n", expression, file, line);
    std::abort();
}

}  // namespace openmana::base

/// A condition that only our own bug can break: aborts in every build type. No side effects inside.
#define OM_CHECK(expression)                                                 \
    do {                                                                     \
        if (!(expression)) [[unlikely]]                                      \
            ::openmana::base::check_failed(#expression, __FILE__, __LINE__); \
    } while (false)

#define OM_CONCAT_INNER(a, b) a##b
#define OM_CONCAT(a, b) OM_CONCAT_INNER(a, b)
/// `TRY(auto x, f());` hands the error of f() to the caller, else binds its value to x.
#define TRY(declaration, expression) \
    TRY_IMPL(OM_CONCAT(try_result_, __LINE__), declaration, expression)
#define TRY_IMPL(name, declaration, expression)                         \
    auto name = (expression);                                           \
    if (!name) [[unlikely]]                                             \
        return ::tl::unexpected<::openmana::base::Error>(name.error()); \
    declaration = std::move(*name)
/// The same for a Result<void>.
#define TRY_VOID(expression)                                                      \
    do {                                                                          \
        if (auto try_result = (expression); !try_result) [[unlikely]]             \
            return ::tl::unexpected<::openmana::base::Error>(try_result.error()); \
    } while (false)
