// SPDX-License-Identifier: Apache-2.0
#include "base/file_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <vector>

#include "support/temp_dir.h"

namespace openmana::base {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Event = FileWatch::Event;

class FileWatchTest : public ::testing::Test {
protected:
    FileWatchTest() {
        auto made =
            FileWatch::create(*loop, path, [this](Event event) { events.push_back(event); });
        EXPECT_TRUE(made) << (made ? "" : made.error().text);
        watch = std::move(*made);
    }
    /// One look at the descriptors.
    std::vector<Event> look() {
        events.clear();
        for (int i = 0; i < 3; ++i) {
            loop->post([this] { loop->stop(); });
            loop->run();
        }
        return events;
    }
    const openmana::test::TempDir folder{"watch"};
    const std::string path = folder.path() + "/file";
    std::unique_ptr<EventLoop> loop = std::move(*EventLoop::create());
    std::vector<Event> events;
    std::unique_ptr<FileWatch> watch;
};

TEST_F(FileWatchTest, TellsWhatIsWrittenInPlaceAndWhatTakesThePlace) {
    EXPECT_THAT(look(), IsEmpty());
    std::ofstream(path) << "one";
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
    std::ofstream(path, std::ios::app) << "two";
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
    std::ofstream(path + ".new") << "three";
    EXPECT_THAT(look(), IsEmpty()) << "another file";
    std::filesystem::rename(path + ".new", path);
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
}

TEST_F(FileWatchTest, TellsNothingWhileAFileIsBeingWritten) {
    std::ofstream file(path);
    file << "half" << std::flush;
    EXPECT_THAT(look(), IsEmpty());
    file.close();
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
}

TEST_F(FileWatchTest, TellsThatAFileIsBeingWrittenToWhoAsksForThat) {
    auto made = FileWatch::create(
        *loop, path, [this](Event event) { events.push_back(event); },
        FileWatch::Of::kContentAndBegin);
    ASSERT_TRUE(made);
    watch = std::move(*made);
    std::ofstream file(path);
    file << "half" << std::flush;
    EXPECT_THAT(look(), ElementsAre(Event::kBegun));
    file.close();
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
    file.open(path);  // which cuts it
    watch->look();
    EXPECT_THAT(events, ElementsAre(Event::kWritten, Event::kBegun));
}

TEST_F(FileWatchTest, TellsWhenTheFileGoesAndComesBack) {
    std::ofstream(path) << "one";
    (void)look();
    std::filesystem::remove(path);
    EXPECT_THAT(look(), ElementsAre(Event::kGone));
    std::ofstream(path) << "one";
    EXPECT_THAT(look(), ElementsAre(Event::kWritten));
    std::filesystem::rename(path, path + ".old");
    EXPECT_THAT(look(), ElementsAre(Event::kGone));
}

TEST_F(FileWatchTest, SaysThatItSeesNothingAnyMore) {
    std::filesystem::remove_all(folder.path());
    EXPECT_THAT(look(), ElementsAre(Event::kBlind));
    EXPECT_THAT(look(), IsEmpty());
}

TEST_F(FileWatchTest, NeedsADirectory) {
    const auto nowhere = FileWatch::create(*loop, folder.path() + "/no/file", [](Event) {});
    ASSERT_FALSE(nowhere);
    EXPECT_EQ(nowhere.error().detail, static_cast<unsigned>(ENOENT));
    EXPECT_FALSE(FileWatch::create(*loop, folder.path() + "/", [](Event) {}));
}

}  // namespace
}  // namespace openmana::base
