// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/event_loop.h"
#include "base/file_watch.h"
#include "base/result.h"
#include "esp/key_ring.h"

namespace openmana::fabric {

/// The pre-shared keys of an uplink, from a file that is read again when it changes. On one loop.
///
/// Only a regular file is read, through no symbolic link, that is of this process's user or of
/// root, and that others cannot read; root's file may be readable for a group, which is how a
/// service gets one. Keys are nowhere but in SecretPages.
class KeyFile {
public:
    static base::Result<std::unique_ptr<KeyFile>> create(base::EventLoop& loop,
                                                         const std::string& path);
    KeyFile(const KeyFile&) = delete;
    KeyFile& operator=(const KeyFile&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] const std::shared_ptr<esp::KeyStore>& keys() const { return keys_; }
    /// What is called on the loop when the keys are other ones.
    void on_replaced(std::function<void()> replaced) { replaced_ = std::move(replaced); }
    /// Reads it now. If it cannot be used the keys stay what they are.
    base::Result<void> reload();

private:
    explicit KeyFile(std::string path);
    void changed(base::FileWatch::Event event);
    void say_gone();

    const uid_t user_;  // of this process; who is in the sandbox does not ask any more
    const std::string path_;
    std::shared_ptr<esp::KeyStore> keys_;
    std::function<void()> replaced_;
    std::unique_ptr<base::FileWatch> watch_;
    bool gone_ = false;  // and a line said so
};

}  // namespace openmana::fabric
