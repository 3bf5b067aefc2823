/* SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB) OR Apache-2.0 */
/*
 * How work requests end: the statuses of completions, and the vendor errors of
 * the RDMA device, each with the status that the public ABI gives it
 * (RNIC 3.9). Here alone; docs/vendor-errors.md and the specification are
 * compared with this list.
 */
#ifndef MANA_STATUS_H
#define MANA_STATUS_H

/* The numbers of ibv_wc_status and ib_wc_status. */
enum mana_hw_wc_status {
	MANA_HW_WC_SUCCESS = 0,
	MANA_HW_WC_LOC_LEN_ERR = 1,
	MANA_HW_WC_LOC_QP_OP_ERR = 2,
	MANA_HW_WC_LOC_PROT_ERR = 4,
	MANA_HW_WC_WR_FLUSH_ERR = 5,
	MANA_HW_WC_MW_BIND_ERR = 6,
	MANA_HW_WC_BAD_RESP_ERR = 7,
	MANA_HW_WC_LOC_ACCESS_ERR = 8,
	MANA_HW_WC_REM_INV_REQ_ERR = 9,
	MANA_HW_WC_REM_ACCESS_ERR = 10,
	MANA_HW_WC_REM_OP_ERR = 11,
	MANA_HW_WC_RETRY_EXC_ERR = 12,
	MANA_HW_WC_RNR_RETRY_EXC_ERR = 13,
	MANA_HW_WC_REM_ABORT_ERR = 16,
	MANA_HW_WC_FATAL_ERR = 19,
	MANA_HW_WC_GENERAL_ERR = 21
};

/*
 * X(name, code, status). Codes 0x1xx and below are of receives and responses,
 * 0x2xx of sends. Codes that are not here are general errors.
 */
#define MANA_HW_RNIC_VENDOR_ERRORS(X)                  \
	X(NONE, 0x000, SUCCESS)                            \
	X(RX_OPCODE, 0x003, REM_INV_REQ_ERR)               \
	X(RX_PACKET_LENGTH, 0x005, LOC_LEN_ERR)            \
	X(RX_RKEY, 0x043, REM_ACCESS_ERR)                  \
	X(RX_RKEY_ACCESS, 0x083, REM_ACCESS_ERR)           \
	X(RX_RKEY_RANGE, 0x0c3, REM_ACCESS_ERR)            \
	X(RX_TOO_LONG, 0x102, LOC_LEN_ERR)                 \
	X(RX_MISBEHAVING, 0x108, FATAL_ERR)                \
	X(RX_MALFORMED_WQE, 0x109, LOC_QP_OP_ERR)          \
	X(RX_CLIENT_ID, 0x10a, FATAL_ERR)                  \
	X(RX_FUNCTION_ID, 0x10b, LOC_ACCESS_ERR)           \
	X(RX_PCIE, 0x10c, FATAL_ERR)                       \
	X(READ_LENGTH, 0x10f, LOC_LEN_ERR)                 \
	X(RX_NO_WQE, 0x111, FATAL_ERR)                     \
	X(RX_SGE_KEY, 0x143, LOC_PROT_ERR)                 \
	X(RX_WQE_KEY, 0x145, FATAL_ERR)                    \
	X(NAK_INVALID_REQUEST, 0x161, REM_OP_ERR)          \
	X(NAK_REMOTE_ACCESS, 0x162, REM_ACCESS_ERR)        \
	X(NAK_REMOTE_OPERATION, 0x163, REM_OP_ERR)         \
	X(RNR_RETRY, 0x164, RNR_RETRY_EXC_ERR)             \
	X(BAD_RESPONSE, 0x165, GENERAL_ERR)                \
	X(RX_SGE_ACCESS, 0x183, LOC_ACCESS_ERR)            \
	X(RX_WQE_ACCESS, 0x185, FATAL_ERR)                 \
	X(RX_SGE_RANGE, 0x1c3, LOC_PROT_ERR)               \
	X(RX_WQE_RANGE, 0x1c5, FATAL_ERR)                  \
	X(RETRY, 0x1c6, RETRY_EXC_ERR)                     \
	X(FLUSHED, 0x1c7, WR_FLUSH_ERR)                    \
	X(TX_CORRUPTED_WQE, 0x201, LOC_QP_OP_ERR)          \
	X(TX_WQE_ACCESS, 0x202, LOC_PROT_ERR)              \
	X(TX_WQE_RANGE, 0x203, LOC_PROT_ERR)               \
	X(TX_WQE_KEY, 0x204, LOC_PROT_ERR)                 \
	X(TX_WQE_FETCH, 0x205, LOC_QP_OP_ERR)              \
	X(TX_DATA_ACCESS, 0x206, LOC_PROT_ERR)             \
	X(TX_DATA_RANGE, 0x207, LOC_PROT_ERR)              \
	X(TX_DATA_KEY, 0x208, LOC_PROT_ERR)                \
	X(TX_DATA_FETCH, 0x209, LOC_QP_OP_ERR)             \
	X(TX_QUEUE_STATE, 0x20a, LOC_QP_OP_ERR)            \
	X(TX_MISBEHAVING, 0x20b, LOC_QP_OP_ERR)            \
	X(TX_WQE_SIZE, 0x210, LOC_QP_OP_ERR)               \
	X(TX_WQE_FIELD, 0x211, LOC_QP_OP_ERR)              \
	X(TX_QP_STATE, 0x212, FATAL_ERR)                   \
	X(TX_NPT, 0x213, FATAL_ERR)                        \
	X(TX_SGID, 0x214, FATAL_ERR)                       \
	X(TX_UNSUPPORTED, 0x215, LOC_QP_OP_ERR)            \
	X(TX_LENGTH, 0x216, LOC_QP_OP_ERR)                 \
	X(TX_MTU, 0x217, LOC_QP_OP_ERR)                    \
	X(TX_FUNCTION, 0x218, FATAL_ERR)                   \
	X(TRANSLATION_MISS, 0x220, LOC_PROT_ERR)           \
	X(TRANSLATION_INDEX, 0x221, LOC_PROT_ERR)          \
	X(TRANSLATION_TAG, 0x222, LOC_PROT_ERR)            \
	X(TRANSLATION_PD, 0x223, LOC_PROT_ERR)             \
	X(TRANSLATION_ACCESS, 0x224, LOC_PROT_ERR)         \
	X(TRANSLATION_TABLE_OVERFLOW, 0x225, LOC_PROT_ERR) \
	X(TRANSLATION_TABLE_LENGTH, 0x226, LOC_PROT_ERR)   \
	X(TRANSLATION_COMMAND, 0x227, LOC_PROT_ERR)        \
	X(FLUSHED_BY_PROVIDER, 0xfff, WR_FLUSH_ERR)

/* Vendor errors of error CQEs. */
enum mana_hw_rnic_vendor_error {
#define MANA_HW_RNIC_VE(name, code, status) MANA_HW_RNIC_VE_##name = code,
	MANA_HW_RNIC_VENDOR_ERRORS(MANA_HW_RNIC_VE)
#undef MANA_HW_RNIC_VE
};

/* Extended queues only: bind, fast registration or local invalidate refused. */
#define MANA_HW_EXT_VE_MEMORY_OPERATION 0x2f0u

#endif /* MANA_STATUS_H */
