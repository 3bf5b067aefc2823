// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace openmana::test {

/// While it lives chosen system calls of this thread fail, as they do on a system that is out of
/// something. All others go to the system. One at a time.
///
/// The device's code is as it is: the linker hands its calls to faulty_calls.cc in the test
/// programs that ask for that (openmana_faulty_calls in tests/CMakeLists.txt).
class FaultyCalls {
public:
    struct When {
        unsigned after = 0;  ///< so many calls succeed before
        unsigned times = 1;  ///< and so many fail
        int fd = -1;         ///< of calls with this first argument; -1: of all
    };

    FaultyCalls();
    /// `fail` at once.
    FaultyCalls(std::string_view call, int error, When when);
    FaultyCalls(std::string_view call, int error) : FaultyCalls(call, error, When{}) {}
    ~FaultyCalls();
    FaultyCalls(const FaultyCalls&) = delete;
    FaultyCalls& operator=(const FaultyCalls&) = delete;

    /// `call`: a name from the list in faulty_calls.cc; any other is a mistake of the test.
    void fail(std::string_view call, int error, When when);
    void fail(std::string_view call, int error) { fail(call, error, When{}); }
    /// In place of the call: this result.
    void give(std::string_view call, long result, When when);
    void give(std::string_view call, long result) { give(call, result, When{}); }
    /// Calls that did not get to the system so far.
    [[nodiscard]] unsigned failed() const { return failed_; }

    /// For the calls: what to return in place of the system's answer, with errno set.
    static std::optional<long> decide(std::string_view call, int fd);

private:
    struct Rule {
        std::string call;
        long result = -1;
        int error = 0;
        When when;
    };
    void add(std::string_view call, long result, int error, const When& when);
    std::optional<long> next(std::string_view call, int fd);

    const std::thread::id thread_ = std::this_thread::get_id();
    std::vector<Rule> rules_;
    unsigned failed_ = 0;
};

}  // namespace openmana::test
