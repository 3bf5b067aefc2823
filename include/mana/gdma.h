/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/* Commands of the GDMA engine itself (GDMA 5, RNIC 1 and 2.12). */
#ifndef MANA_GDMA_H
#define MANA_GDMA_H

#include <mana/hwc.h>
#include <mana/types.h>

#define MANA_HW_VERIFY_DRIVER_VERSION 1
#define MANA_HW_QUERY_MAX_RESOURCES 2
#define MANA_HW_LIST_DEVICES 3
#define MANA_HW_REGISTER_DEVICE 4
#define MANA_HW_DEREGISTER_DEVICE 5
#define MANA_HW_GENERATE_TEST_EQE 10
#define MANA_HW_CREATE_QUEUE 12
#define MANA_HW_DISABLE_QUEUE 13
#define MANA_HW_ALLOCATE_RESOURCE_RANGE 22
#define MANA_HW_DESTROY_RESOURCE_RANGE 24
#define MANA_HW_CREATE_DMA_REGION 25
#define MANA_HW_DMA_REGION_ADD_PAGES 26
#define MANA_HW_DESTROY_DMA_REGION 27
#define MANA_HW_CREATE_PD 29
#define MANA_HW_DESTROY_PD 30
#define MANA_HW_CREATE_MR 31
#define MANA_HW_DESTROY_MR 32
#define MANA_HW_QUERY_HWC_TIMEOUT 84
#define MANA_HW_ALLOC_DM 96
#define MANA_HW_DESTROY_DM 97
/* From here on an opcode belongs to the device that the request names. */
#define MANA_HW_FIRST_DEVICE_OPCODE 0x20000

/* VERIFY_DRIVER_VERSION (GDMA 5.2) */
struct mana_hw_verify_version_req {
	struct mana_hw_request header;
	uint64_t protocol_min;
	uint64_t protocol_max;
	uint64_t driver_caps[4];
	uint64_t driver_version;
	uint32_t os_type;
	uint32_t reserved0;
	uint32_t os_major;
	uint32_t os_minor;
	uint32_t os_build;
	uint32_t os_platform;
	uint64_t reserved1;
	uint8_t os_text[4][128];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_verify_version_req, 640);
MANA_HW_AT(struct mana_hw_verify_version_req, driver_caps, 56);
MANA_HW_AT(struct mana_hw_verify_version_req, os_type, 96);
MANA_HW_AT(struct mana_hw_verify_version_req, os_text, 128);

struct mana_hw_verify_version_resp {
	struct mana_hw_response header;
	uint64_t protocol;
	uint64_t device_caps[4];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_verify_version_resp, 72);
MANA_HW_AT(struct mana_hw_verify_version_resp, device_caps, 40);

#define MANA_HW_PROTOCOL_VERSION 1
#define MANA_HW_OS_LINUX 0x10
/* Capability flags 1; the driver's and the device's share the numbering. */
#define MANA_HW_CAP_HWC_TIMEOUT (1ULL << 3)
#define MANA_HW_CAP_BIG_PAGES (1ULL << 4) /* DMA regions of 4 MiB, 1 GiB and 2 GiB pages */
#define MANA_HW_CAP_SELF_RESET (1ULL << 14) /* of a driver: on EQE 135 */
#define MANA_HW_CAP_MODERATION (1ULL << 15) /* of CQs: MANA_HW_DB_CQ_MODERATION */

/* QUERY_MAX_RESOURCES (GDMA 5.4); the request is the bare header */
struct mana_hw_max_resources_resp {
	struct mana_hw_response header;
	uint32_t status;
	uint32_t max_sqs;
	uint32_t max_rqs;
	uint32_t max_cqs;
	uint32_t max_eqs;
	uint32_t max_doorbell_pages;
	uint32_t max_keys;
	uint32_t max_moderation_contexts;
	uint32_t max_moderated_cqs;
	uint32_t max_msix;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_max_resources_resp, 72);
MANA_HW_AT(struct mana_hw_max_resources_resp, max_keys, 56);
MANA_HW_AT(struct mana_hw_max_resources_resp, max_msix, 68);

/* LIST_DEVICES (GDMA 5.5); the request is the bare header */
#define MANA_HW_MAX_DEVICES 64

struct mana_hw_list_devices_resp {
	struct mana_hw_response header;
	uint32_t count;
	uint32_t reserved;
	struct mana_hw_device_id devices[MANA_HW_MAX_DEVICES];
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_list_devices_resp, 296);
MANA_HW_AT(struct mana_hw_list_devices_resp, devices, 40);

/* REGISTER_DEVICE (GDMA 5.6); the request is the bare header */
struct mana_hw_register_device_resp {
	struct mana_hw_response header;
	uint32_t pd_id;
	uint32_t gpa_key;
	uint32_t doorbell_page;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_register_device_resp, 44);

/* GENERATE_TEST_EQE (GDMA 5.10) */
struct mana_hw_test_eqe_req {
	struct mana_hw_request header;
	uint32_t eq_id;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_test_eqe_req, 44);

/* CREATE_QUEUE, DISABLE_QUEUE (GDMA 5.11, 5.12) */
struct mana_hw_create_queue_req {
	struct mana_hw_request header;
	uint32_t type;
	uint32_t reserved0;
	uint32_t pd_id;
	uint32_t doorbell_page;
	uint64_t region;
	uint32_t reserved1;
	uint32_t bytes;
	uint32_t log2_throttle_limit;
	uint32_t msix_index;
	uint32_t moderation_context;
	uint32_t parent_eq;
	uint8_t rq_options[3];
	uint8_t sq_option;
	uint32_t reserved2;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_queue_req, 96);
MANA_HW_AT(struct mana_hw_create_queue_req, pd_id, 48);
MANA_HW_AT(struct mana_hw_create_queue_req, region, 56);
MANA_HW_AT(struct mana_hw_create_queue_req, bytes, 68);
MANA_HW_AT(struct mana_hw_create_queue_req, msix_index, 76);
MANA_HW_AT(struct mana_hw_create_queue_req, rq_options, 88);

struct mana_hw_create_queue_resp {
	struct mana_hw_response header;
	uint32_t queue_id;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_queue_resp, 36);

struct mana_hw_disable_queue_req {
	struct mana_hw_request header;
	uint32_t type;
	uint32_t queue_id;
	uint32_t id_allocated_on_creation;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_disable_queue_req, 52);

/* ALLOCATE_RESOURCE_RANGE, DESTROY_RESOURCE_RANGE (GDMA 5.8, 5.9) */
#define MANA_HW_RESOURCE_DOORBELL_PAGE 27

struct mana_hw_allocate_range_req {
	struct mana_hw_request header;
	uint32_t type;
	uint32_t count;
	uint32_t alignment;
	uint32_t first_allowed;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_allocate_range_req, 56);

struct mana_hw_allocate_range_resp {
	struct mana_hw_response header;
	uint32_t first;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_allocate_range_resp, 36);

struct mana_hw_destroy_range_req {
	struct mana_hw_request header;
	uint32_t type;
	uint32_t count;
	uint32_t first;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_destroy_range_req, 52);

/* CREATE_DMA_REGION, DMA_REGION_ADD_PAGES, DESTROY_DMA_REGION (GDMA 5.13, 5.14, RNIC 2.3) */
struct mana_hw_create_region_req {
	struct mana_hw_request header;
	uint64_t length;
	uint32_t first_offset;
	uint32_t page_type; /* log2 of the page size, less 12 */
	uint32_t page_count;
	uint32_t pages_here; /* behind this structure: bus addresses, 8 bytes each */
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_region_req, 64);
MANA_HW_AT(struct mana_hw_create_region_req, first_offset, 48);
MANA_HW_AT(struct mana_hw_create_region_req, page_count, 56);

struct mana_hw_create_region_resp {
	struct mana_hw_response header;
	uint64_t region;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_region_resp, 40);

struct mana_hw_add_pages_req {
	struct mana_hw_request header;
	uint64_t region;
	uint32_t pages_here; /* behind this structure */
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_add_pages_req, 56);

struct mana_hw_destroy_region_req {
	struct mana_hw_request header;
	uint64_t region;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_destroy_region_req, 48);

#define MANA_HW_PAGES_PER_CREATE 504
#define MANA_HW_PAGES_PER_ADD 505

/* CREATE_PD, DESTROY_PD (GDMA 5.15) */
#define MANA_HW_PD_ALLOW_GPA (1U << 0)
#define MANA_HW_PD_SHORT_ID (1U << 2) /* an id below 65536 */

struct mana_hw_create_pd_req {
	struct mana_hw_request header;
	uint32_t flags;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_pd_req, 48);

struct mana_hw_create_pd_resp {
	struct mana_hw_response header;
	uint64_t pd;
	uint32_t pd_id;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_pd_resp, 48);

struct mana_hw_destroy_pd_req {
	struct mana_hw_request header;
	uint64_t pd;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_destroy_pd_req, 48);

/* CREATE_MR, DESTROY_MR (GDMA 5.16, 5.17, RNIC 2.12) */
#define MANA_HW_MR_GPA 1
#define MANA_HW_MR_GVA 2
#define MANA_HW_MR_ZERO_BASED 4
#define MANA_HW_MR_DM 5
#define MANA_HW_MR_WINDOW_TYPE1 6
#define MANA_HW_MR_WINDOW_TYPE2 7

#define MANA_HW_ACCESS_LOCAL_READ (1U << 0)
#define MANA_HW_ACCESS_LOCAL_WRITE (1U << 1)
#define MANA_HW_ACCESS_REMOTE_READ (1U << 2)
#define MANA_HW_ACCESS_REMOTE_WRITE (1U << 3)
#define MANA_HW_ACCESS_REMOTE_ATOMIC (1U << 4)
#define MANA_HW_ACCESS_BIND_WINDOW (1U << 5)
#define MANA_HW_ACCESS_ALL 0x3fU

struct mana_hw_create_mr_req {
	struct mana_hw_request header;
	uint64_t pd;
	uint32_t type;
	uint32_t reserved0;
	union {
		struct {
			uint64_t region;
			uint64_t virtual_address;
			uint32_t access;
		} MANA_HW_PACKED gva;
		struct {
			uint64_t region;
			uint32_t access;
			uint32_t reserved[2];
		} MANA_HW_PACKED zero_based;
		struct {
			uint64_t dm;
			uint64_t offset;
			uint32_t access;
		} MANA_HW_PACKED dm;
	} u;
	uint32_t reserved1;
	uint64_t dm_length; /* MANA_HW_MR_DM only */
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_mr_req, 88);
MANA_HW_AT(struct mana_hw_create_mr_req, type, 48);
MANA_HW_AT(struct mana_hw_create_mr_req, u, 56);
MANA_HW_AT(struct mana_hw_create_mr_req, u.gva.virtual_address, 64);
MANA_HW_AT(struct mana_hw_create_mr_req, u.gva.access, 72);
MANA_HW_AT(struct mana_hw_create_mr_req, u.zero_based.access, 64);
MANA_HW_AT(struct mana_hw_create_mr_req, u.dm.access, 72);
MANA_HW_AT(struct mana_hw_create_mr_req, dm_length, 80);

struct mana_hw_create_mr_resp {
	struct mana_hw_response header;
	uint64_t mr;
	uint32_t lkey;
	uint32_t rkey;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_create_mr_resp, 48);

struct mana_hw_destroy_mr_req {
	struct mana_hw_request header;
	uint64_t mr;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_destroy_mr_req, 48);

/* QUERY_HWC_TIMEOUT (GDMA 5.3) */
struct mana_hw_hwc_timeout_req {
	struct mana_hw_request header;
	uint32_t timeout_ms;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_hwc_timeout_req, 48);

struct mana_hw_hwc_timeout_resp {
	struct mana_hw_response header;
	uint32_t timeout_ms;
	uint32_t reserved;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_hwc_timeout_resp, 40);

/* ALLOC_DM, DESTROY_DM (GDMA 5.18) */
struct mana_hw_alloc_dm_req {
	struct mana_hw_request header;
	uint64_t length;
	uint32_t log2_alignment;
	uint32_t flags;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_alloc_dm_req, 56);

struct mana_hw_alloc_dm_resp {
	struct mana_hw_response header;
	uint64_t dm;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_alloc_dm_resp, 40);

struct mana_hw_destroy_dm_req {
	struct mana_hw_request header;
	uint64_t dm;
} MANA_HW_PACKED;
MANA_HW_SIZE(struct mana_hw_destroy_dm_req, 48);

#endif /* MANA_GDMA_H */
