// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "base/file_watch.h"
#include "fabric/fdb.h"

namespace openmana::fabric {

/// The file that another program writes for an Fdb, read when it is made and when it changes: all
/// of it, or, if a line is wrong, nothing. What was read last stays while there is no file. On one
/// loop, which no frames wait for: a long table takes its time.
///
/// Only a regular file is read, through no symbolic link, that is of this process's user or of
/// root, and that nobody else can write; not while somebody is at writing it, nor if its last line
/// has no end.
class FdbFile {
public:
    /// Reads it. Only a directory that cannot be watched is an error: a file may come and be
    /// mended later. `label` names the network in the log; `fdb` outlives the object.
    static base::Result<std::unique_ptr<FdbFile>> create(base::EventLoop& loop, Fdb& fdb,
                                                         std::string path, std::string label);

private:
    FdbFile(Fdb& fdb, std::string path, std::string label);
    void changed(base::FileWatch::Event event);
    void read();
    void keep(const std::string& reason);

    Fdb& fdb_;
    const std::string path_;
    const std::string label_;
    const uid_t user_;  // of this process
    std::unique_ptr<base::FileWatch> watch_;
    bool begun_ = false;    // somebody is at writing it
    bool reading_ = false;  // and what is told now is about what was just read
    bool again_ = false;
};

}  // namespace openmana::fabric
