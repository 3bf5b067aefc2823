/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * BAR0 registers, the SHM channel and the hardware channel with its message
 * headers (GDMA 1.3, 2, 4).
 */
#ifndef MANA_HWC_H
#define MANA_HWC_H

#include <mana/types.h>

#define MANA_HW_PCI_VENDOR 0x1414
#define MANA_HW_PCI_DEVICE_VF 0x00ba

/* Registers of a virtual function in BAR0. */
#define MANA_HW_REG_DB_OFFSET 0x08 /* 8 bytes: of the doorbell area in BAR0 */
#define MANA_HW_REG_DB_PAGE_SIZE 0x10 /* 4 bytes, of which 15:0 count */
#define MANA_HW_REG_SHM_OFFSET 0x18 /* 8 bytes: of the SHM aperture in BAR0 */

/* The SHM aperture: eight 4-byte words, of which the last is the header (GDMA 2.1). */
#define MANA_HW_SHM_WORDS 8
#define MANA_HW_SHM_BYTES 32

struct mana_hw_shm_establish {
	uint8_t eq_frame[6]; /* page frame numbers, bits 47:0, little endian */
	uint8_t cq_frame[6];
	uint8_t rq_frame[6];
	uint8_t sq_frame[6];
	uint16_t frames_high; /* bits 51:48: 3:0 EQ, 7:4 CQ, 11:8 RQ, 15:12 SQ */
	uint16_t msix_index;
	uint32_t header;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_shm_establish, 32);
MANA_HW_AT(struct mana_hw_shm_establish, cq_frame, 6);
MANA_HW_AT(struct mana_hw_shm_establish, rq_frame, 12);
MANA_HW_AT(struct mana_hw_shm_establish, sq_frame, 18);
MANA_HW_AT(struct mana_hw_shm_establish, frames_high, 24);
MANA_HW_AT(struct mana_hw_shm_establish, msix_index, 26);
MANA_HW_AT(struct mana_hw_shm_establish, header, 28);

#define MANA_HW_SHM_TYPE MANA_HW_BITS32(2, 0)
#define MANA_HW_SHM_VERSION MANA_HW_BITS32(5, 3)
#define MANA_HW_SHM_RESPONSE MANA_HW_BITS32(7, 7) /* direction: 1 = device to driver */
#define MANA_HW_SHM_STATUS MANA_HW_BITS32(15, 8)
#define MANA_HW_SHM_STATUS_SHIFT 8
#define MANA_HW_SHM_RESET_VF MANA_HW_BITS32(24, 24)
#define MANA_HW_SHM_DEVICE_OWNS MANA_HW_BITS32(31, 31)

#define MANA_HW_SHM_ESTABLISH 1
#define MANA_HW_SHM_DESTROY 2

/* Each of the four bootstrap queues, and the most of a message. */
#define MANA_HW_HWC_QUEUE_BYTES 4096
#define MANA_HW_HWC_MESSAGE_BYTES 4096

/* Data types of MANA_HW_EQE_HWC_INIT_DATA (GDMA 4.2). */
#define MANA_HW_INIT_CQ_ID 1
#define MANA_HW_INIT_RQ_ID 2
#define MANA_HW_INIT_SQ_ID 3
#define MANA_HW_INIT_QUEUE_DEPTH 4
#define MANA_HW_INIT_MAX_REQUEST 5
#define MANA_HW_INIT_MAX_RESPONSE 6
#define MANA_HW_INIT_MAX_CQS 7
#define MANA_HW_INIT_PD_ID 8
#define MANA_HW_INIT_GPA_KEY 9
#define MANA_HW_INIT_PF_RQ_ID 10
#define MANA_HW_INIT_PF_CQ_ID 11
#define MANA_HW_INIT_SHIFT 24

/* OOB of a request WQE in the HWC SQ (GDMA 4.3). */
struct mana_hw_hwc_oob {
	uint32_t reserved[2];
	uint32_t destination_rq; /* 23:0; 31:24 destination VF */
	uint32_t destination_cq; /* 23:0 */
	uint32_t source_cq; /* 23:0; 24 loopback, 25 LSO override, 26 destination is PF */
	uint32_t source_sq; /* 23:0 */
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_hwc_oob, 24);

/* Client data of the CQE of a response (GDMA 4.4). */
struct mana_hw_hwc_rx_cqe {
	uint32_t flags; /* MANA_HW_HWC_CQE_* */
	uint32_t source_wq; /* 23:0; 31:24 source VF */
	uint32_t reserved0;
	uint32_t rq_wqe_offset; /* bytes, running */
	uint32_t rq_wqe_offset_high;
	uint32_t client_data_unit;
	uint32_t length; /* of the message */
	uint32_t chunk_offset;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_hwc_rx_cqe, 32);
MANA_HW_AT(struct mana_hw_hwc_rx_cqe, rq_wqe_offset, 12);
MANA_HW_AT(struct mana_hw_hwc_rx_cqe, length, 24);

#define MANA_HW_HWC_CQE_EOM MANA_HW_BITS32(6, 6)
#define MANA_HW_HWC_CQE_SOM MANA_HW_BITS32(7, 7)

/* Message headers (GDMA 4.5). */
struct mana_hw_msg_header {
	uint32_t type; /* 0 */
	uint32_t opcode;
	uint16_t version;
	uint16_t message_id;
	uint32_t size; /* bytes, all headers included */
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_msg_header, 16);
MANA_HW_AT(struct mana_hw_msg_header, version, 8);
MANA_HW_AT(struct mana_hw_msg_header, message_id, 10);
MANA_HW_AT(struct mana_hw_msg_header, size, 12);

struct mana_hw_device_id {
	uint16_t type; /* MANA_HW_DEVICE_* */
	uint16_t instance;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_device_id, 4);

#define MANA_HW_DEVICE_NONE 0
#define MANA_HW_DEVICE_HWC 1
#define MANA_HW_DEVICE_ETHERNET 2
#define MANA_HW_DEVICE_RDMA 3

struct mana_hw_request {
	struct mana_hw_msg_header request;
	struct mana_hw_msg_header response; /* size = room for the response */
	struct mana_hw_device_id device;
	uint32_t activity_id;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_request, 40);
MANA_HW_AT(struct mana_hw_request, response, 16);
MANA_HW_AT(struct mana_hw_request, device, 32);
MANA_HW_AT(struct mana_hw_request, activity_id, 36);

struct mana_hw_response {
	struct mana_hw_msg_header response;
	struct mana_hw_device_id device;
	uint32_t activity_id;
	uint32_t status;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_response, 32);
MANA_HW_AT(struct mana_hw_response, device, 16);
MANA_HW_AT(struct mana_hw_response, activity_id, 20);
MANA_HW_AT(struct mana_hw_response, status, 24);

/*
 * Status words; any other value is a failure (GDMA 4.6). 1 to 4 are OpenMANA's
 * choice: to the stock drivers they are plain failures.
 */
#define MANA_HW_STATUS_SUCCESS 0U
#define MANA_HW_STATUS_INVALID_PARAMETER 1U
#define MANA_HW_STATUS_NOT_FOUND 2U
#define MANA_HW_STATUS_NO_RESOURCES 3U
#define MANA_HW_STATUS_BUSY 4U
#define MANA_HW_STATUS_MORE_ENTRIES 0x105U
#define MANA_HW_STATUS_UNSUPPORTED 0xffffffffU

#endif /* MANA_HWC_H */
