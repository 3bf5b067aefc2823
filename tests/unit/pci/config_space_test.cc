// SPDX-License-Identifier: Apache-2.0
#include "pci/config_space.h"

#include <linux/pci_regs.h>

#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/endian.h"

namespace openmana::pci {
namespace {

using testing::ElementsAre;

class ConfigSpaceTest : public testing::Test {
protected:
    static ConfigIdentity identity() {
        ConfigIdentity result;
        result.serial = 0x0022480011223344;
        result.bar0_size = 8U << 20;
        result.msix_bar_size = 8192;
        result.msix_pba_offset = 4096;
        result.msix_vectors = 65;
        return result;
    }
    template <typename T>
    T read(std::size_t offset) const {
        T value{};
        space_.read(offset, std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }
    template <typename T>
    bool write(std::size_t offset, T value) {
        return space_.write(offset, std::as_bytes(std::span(&value, 1)));
    }
    /// Capability id to offset, in list order, as lspci walks it.
    std::vector<std::pair<unsigned, unsigned>> capabilities() const {
        std::vector<std::pair<unsigned, unsigned>> result;
        for (unsigned at = read<std::uint8_t>(PCI_CAPABILITY_LIST); at != 0 && result.size() < 48;
             at = read<std::uint8_t>(at + PCI_CAP_LIST_NEXT)) {
            result.emplace_back(read<std::uint8_t>(at), at);
        }
        return result;
    }
    std::vector<std::uint8_t> all() const {
        std::vector<std::uint8_t> result(kConfigSize);
        space_.read(0, std::as_writable_bytes(std::span(result)));
        return result;
    }

    ConfigSpace space_{identity()};
};

TEST_F(ConfigSpaceTest, HeaderIsThatOfAManaVirtualFunction) {
    const auto bytes = all();
    const std::vector<std::uint8_t> expected = {
        0x14, 0x14, 0xBA, 0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00,
        0x00, 0x00, 0x00, 0x0C, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0C, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x14, 0xBA, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x40, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    };
    EXPECT_THAT(std::vector<std::uint8_t>(bytes.begin(), bytes.begin() + 64),
                testing::ElementsAreArray(expected));
}

TEST_F(ConfigSpaceTest, CapabilitiesAreLinked) {
    EXPECT_NE(read<std::uint16_t>(PCI_STATUS) & PCI_STATUS_CAP_LIST, 0);
    EXPECT_THAT(capabilities(),
                ElementsAre(std::pair(PCI_CAP_ID_PM, 0x40U), std::pair(PCI_CAP_ID_MSIX, 0x50U),
                            std::pair(PCI_CAP_ID_EXP, 0x60U)));
}

TEST_F(ConfigSpaceTest, MsixNamesItsBar) {
    EXPECT_EQ(read<std::uint16_t>(kCapMsix + PCI_MSIX_FLAGS), 64);
    EXPECT_EQ(read<std::uint32_t>(kCapMsix + PCI_MSIX_TABLE), 4U);
    EXPECT_EQ(read<std::uint32_t>(kCapMsix + PCI_MSIX_PBA), 0x1004U);
    (void)write<std::uint16_t>(kCapMsix + PCI_MSIX_FLAGS, 0xFFFF);
    EXPECT_EQ(read<std::uint16_t>(kCapMsix + PCI_MSIX_FLAGS),
              PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL | 64);
    (void)write<std::uint32_t>(kCapMsix + PCI_MSIX_TABLE, 0xFFFFFFFF);
    EXPECT_EQ(read<std::uint32_t>(kCapMsix + PCI_MSIX_TABLE), 4U);
}

TEST_F(ConfigSpaceTest, ExpressReadsLikeAnEndpoint) {
    const unsigned at = kCapExpress;
    const auto flags = read<std::uint16_t>(at + PCI_EXP_FLAGS);
    EXPECT_EQ(flags & PCI_EXP_FLAGS_VERS, 2);
    EXPECT_EQ((flags & PCI_EXP_FLAGS_TYPE) >> 4, PCI_EXP_TYPE_ENDPOINT);
    const auto capabilities = read<std::uint32_t>(at + PCI_EXP_DEVCAP);
    EXPECT_NE(capabilities & PCI_EXP_DEVCAP_FLR, 0U);
    EXPECT_NE(capabilities & PCI_EXP_DEVCAP_RBER, 0U);
    EXPECT_EQ(capabilities & PCI_EXP_DEVCAP_PAYLOAD, 1U);  // 256 bytes
    const auto control = read<std::uint16_t>(at + PCI_EXP_DEVCTL);
    EXPECT_EQ(control & PCI_EXP_DEVCTL_READRQ, PCI_EXP_DEVCTL_READRQ_512B);
    EXPECT_EQ(control & PCI_EXP_DEVCTL_PAYLOAD, PCI_EXP_DEVCTL_PAYLOAD_128B);
    const auto link = read<std::uint32_t>(at + PCI_EXP_LNKCAP);
    const auto status = read<std::uint16_t>(at + PCI_EXP_LNKSTA);
    EXPECT_EQ(link & PCI_EXP_LNKCAP_SLS, static_cast<unsigned>(PCI_EXP_LNKCAP_SLS_16_0GB));
    EXPECT_EQ(status & PCI_EXP_LNKSTA_CLS, PCI_EXP_LNKSTA_CLS_16_0GB);
    EXPECT_EQ((link & PCI_EXP_LNKCAP_MLW) >> 4, 16U);
    EXPECT_EQ((status & PCI_EXP_LNKSTA_NLW) >> 4, 16);
    EXPECT_NE(read<std::uint32_t>(at + PCI_EXP_LNKCAP2) & PCI_EXP_LNKCAP2_SLS_16_0GB, 0U);
}

TEST_F(ConfigSpaceTest, SerialNumberIsTheOnlyExtendedCapability) {
    const auto header = read<std::uint32_t>(PCI_CFG_SPACE_SIZE);
    EXPECT_EQ(PCI_EXT_CAP_ID(header), PCI_EXT_CAP_ID_DSN);
    EXPECT_EQ(PCI_EXT_CAP_VER(header), 1U);
    EXPECT_EQ(PCI_EXT_CAP_NEXT(header), 0U);
    EXPECT_EQ(read<std::uint64_t>(PCI_CFG_SPACE_SIZE + 4), 0x0022480011223344U);
    ConfigIdentity without = identity();
    without.serial = 0;
    std::uint32_t value = 1;
    ConfigSpace(without).read(PCI_CFG_SPACE_SIZE, std::as_writable_bytes(std::span(&value, 1)));
    EXPECT_EQ(value, 0U);
}

TEST_F(ConfigSpaceTest, BarsAreSizedByWritingOnes) {
    for (unsigned offset = PCI_BASE_ADDRESS_0; offset <= PCI_BASE_ADDRESS_5; offset += 4) {
        (void)write<std::uint32_t>(offset, 0xFFFFFFFF);
    }
    (void)write<std::uint32_t>(PCI_ROM_ADDRESS, 0xFFFFFFFF);
    EXPECT_EQ(read<std::uint64_t>(PCI_BASE_ADDRESS_0), ~((8ULL << 20) - 1) | 0xC);
    EXPECT_EQ(read<std::uint64_t>(PCI_BASE_ADDRESS_2), 0U);
    EXPECT_EQ(read<std::uint64_t>(PCI_BASE_ADDRESS_4), ~8191ULL | 0xC);
    EXPECT_EQ(read<std::uint32_t>(PCI_ROM_ADDRESS), 0U);
    (void)write<std::uint64_t>(PCI_BASE_ADDRESS_0, 0x0000004012345678);
    EXPECT_EQ(read<std::uint64_t>(PCI_BASE_ADDRESS_0), 0x000000401200000CU);
}

TEST_F(ConfigSpaceTest, IdentityCannotBeWritten) {
    const auto before = all();
    for (std::size_t at = 0; at < kConfigSize; at += 4) {
        if (at == (kCapExpress + PCI_EXP_DEVCTL)) continue;
        EXPECT_FALSE(write<std::uint32_t>(at, 0xFFFFFFFF));
    }
    const std::map<std::size_t, std::uint8_t> writable = {{0x04, 0x46}, {0x05, 0x05}, {0x0C, 0xFF},
                                                          {0x3C, 0xFF}, {0x44, 0x03}, {0x53, 0xC0},
                                                          {0x70, 0xCB}, {0x88, 0x1F}, {0x90, 0x0F}};
    const auto after = all();
    for (std::size_t at = 0; at < kConfigSize; ++at) {
        if (at >= 0x10 && at < 0x28) continue;  // BARs
        const auto found = writable.find(at);
        const std::uint8_t mask = found == writable.end() ? 0 : found->second;
        EXPECT_EQ(after[at], static_cast<std::uint8_t>(before[at] | mask)) << at;
    }
}

TEST_F(ConfigSpaceTest, CommandKeepsWhatSoftwareWrites) {
    EXPECT_FALSE(write<std::uint16_t>(PCI_COMMAND,
                                      PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_IO));
    EXPECT_EQ(read<std::uint16_t>(PCI_COMMAND), PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
    EXPECT_FALSE(write<std::uint8_t>(PCI_COMMAND + 1, 0x04));
    EXPECT_EQ(read<std::uint16_t>(PCI_COMMAND),
              PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE);
}

TEST_F(ConfigSpaceTest, FlrBitStartsAResetAndReadsAsZero) {
    const unsigned control = kCapExpress + PCI_EXP_DEVCTL;
    EXPECT_TRUE(write<std::uint16_t>(control, 0x2810 | PCI_EXP_DEVCTL_BCR_FLR));
    EXPECT_EQ(read<std::uint16_t>(control), 0x2810);
    EXPECT_TRUE(write<std::uint8_t>(control + 1, 0xA8));
    EXPECT_TRUE(write<std::uint32_t>(control, 0xFFFFFFFF));
    EXPECT_EQ(read<std::uint16_t>(control), 0x79FF);
    EXPECT_FALSE(write<std::uint16_t>(control, 0x2810));
}

TEST_F(ConfigSpaceTest, PowerStateIsD0OrD3) {
    const unsigned status = kCapPower + PCI_PM_CTRL;
    EXPECT_EQ(read<std::uint16_t>(kCapPower + PCI_PM_PMC) & PCI_PM_CAP_VER_MASK, 3);
    EXPECT_NE(read<std::uint16_t>(status) & PCI_PM_CTRL_NO_SOFT_RESET, 0);
    (void)write<std::uint16_t>(status, 3);
    EXPECT_EQ(read<std::uint16_t>(status), 0x000B);
    (void)write<std::uint16_t>(status, 1);
    EXPECT_EQ(read<std::uint16_t>(status), 0x000B);
    (void)write<std::uint16_t>(status, 0);
    EXPECT_EQ(read<std::uint16_t>(status), 0x0008);
    (void)write<std::uint16_t>(status, 2);
    EXPECT_EQ(read<std::uint16_t>(status), 0x0008);
}

TEST_F(ConfigSpaceTest, ResetRestoresPowerOn) {
    const auto before = all();
    for (std::size_t at = 0; at < kConfigSize; at += 8) (void)write<std::uint64_t>(at, UINT64_MAX);
    EXPECT_NE(all(), before);
    space_.reset();
    EXPECT_EQ(all(), before);
}

TEST_F(ConfigSpaceTest, ManyVectorsFitTheTableSize) {
    ConfigIdentity most = identity();
    most.msix_vectors = 2048;
    std::uint16_t flags = 0;
    ConfigSpace(most).read(kCapMsix + PCI_MSIX_FLAGS, std::as_writable_bytes(std::span(&flags, 1)));
    EXPECT_EQ(flags, 2047);
}

}  // namespace
}  // namespace openmana::pci
