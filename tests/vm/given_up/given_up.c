// SPDX-License-Identifier: GPL-2.0
/*
 * A device that does not do what mana_ib asks for, and a kernel user that sees what becomes of its
 * buffers. This module stands between mana_ib and its parent: parameters say which requests have no
 * answer, which are refused, and how long both take. The device itself is a good one, so that what
 * it would write can be told from whether it was told to end, or is cut off from memory. It also
 * hides the first port's interface, as of a parent that could not start it, tells mana_ib of the
 * end of a queue pair, as the parent's interrupt does, and posts in the middle of a poll, as
 * another CPU may.
 */
#include <linux/delay.h>
#include <linux/ftrace.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/workqueue.h>
#include <mana/hwc.h>
#include <mana/rnic.h>
#include <net/mana/mana.h>
#include <rdma/ib_verbs.h>

enum { BUFFER_BYTES = 4096, WAIT_MS = 30000, DEVICE_MS = 100 };

static bool lose_all;
module_param(lose_all, bool, 0644);
MODULE_PARM_DESC(lose_all, "no request has an answer");
static unsigned int lose_opcode;
module_param(lose_opcode, uint, 0644);
MODULE_PARM_DESC(lose_opcode, "no request of this opcode has an answer, whoever sends it");
static unsigned int refuse_opcode;
module_param(refuse_opcode, uint, 0644);
MODULE_PARM_DESC(refuse_opcode, "requests of this opcode are refused with 'busy', whoever sends");
static unsigned int swap_opcode;
module_param(swap_opcode, uint, 0644);
MODULE_PARM_DESC(swap_opcode, "requests of this opcode find the answer to another, a success");
static unsigned int lose_states;
module_param(lose_states, uint, 0644);
MODULE_PARM_DESC(lose_states, "queue pairs' steps to these states have no answer, a bit each");
static unsigned int refuse_states;
module_param(refuse_states, uint, 0644);
MODULE_PARM_DESC(refuse_states, "such steps are refused with 'invalid parameter'");
static bool late;
module_param(late, bool, 0644);
MODULE_PARM_DESC(late, "the first step of each queue pair to RESET finds the answer to another");
static unsigned int lost_ms = 10;
module_param(lost_ms, uint, 0644);
MODULE_PARM_DESC(lost_ms, "after which there is no answer");
static unsigned int reset_ms;
module_param(reset_ms, uint, 0644);
MODULE_PARM_DESC(reset_ms, "that a step to RESET takes");
static unsigned int entries = 16;
module_param(entries, uint, 0644);
MODULE_PARM_DESC(entries, "of the CQ of the queue pair");
static bool full;
module_param(full, bool, 0644);
MODULE_PARM_DESC(full, "receives fill that CQ, and one more is posted while they are polled");

static unsigned long handler;
module_param(handler, ulong, 0644);
MODULE_PARM_DESC(handler, "mana_ib_event(): it tells twice that the queue pair has ended");

static char verdict[128] = "none";
module_param_string(verdict, verdict, sizeof verdict, 0444);
MODULE_PARM_DESC(verdict, "what became of the queue pair");
static char fatal[128];
module_param_string(fatal, fatal, sizeof fatal, 0444);
MODULE_PARM_DESC(fatal, "devices that told of their end");
static DEFINE_SPINLOCK(fatal_lock);

static atomic_t resets;  // that the device carried out
static u64 found_late;   // the last queue pair that did

/* Whether the caller is mana_ib; Ethernet is not touched. */
static bool is_driver(unsigned long address) {
    char name[KSYM_SYMBOL_LEN];

    sprint_symbol(name, address);
    return strstr(name, "[mana_ib]");
}

/* The state that a queue pair is to go to, as a bit; 0 of other requests. */
static unsigned int state_of(const struct mana_hw_request* request) {
    const struct mana_hw_rnic_set_qp_state_req* step = (const void*)request;

    return request->request.opcode == MANA_HW_RNIC_SET_QP_STATE ? BIT(step->state) : 0;
}

/* The queue pair of such a request. */
static u64 handle_of(const struct mana_hw_request* request) {
    return ((const struct mana_hw_rnic_set_qp_state_req*)request)->qp;
}

static void fill(struct mana_hw_response* answer, const struct mana_hw_request* request,
                 u32 activity, u32 status) {
    memset(answer, 0, sizeof *answer);
    answer->response.opcode = request->request.opcode;
    answer->response.version = 1;
    answer->response.size = sizeof *answer;
    answer->device = request->device;
    answer->activity_id = activity;
    answer->status = status;
}

/* In the place of mana_gd_send_request(). */
static noinline int send(struct gdma_context* gc, u32 length, const void* request, u32 room,
                         void* answer) {
    const struct mana_hw_request* header = request;
    unsigned int state = state_of(header);
    int err;

    if (lose_opcode && header->request.opcode == lose_opcode) {
        msleep(lost_ms);
        return -ETIMEDOUT;
    }
    if (refuse_opcode && header->request.opcode == refuse_opcode) {
        fill(answer, header, header->activity_id, MANA_HW_STATUS_BUSY);
        return -EPROTO;
    }
    if (is_driver((unsigned long)__builtin_return_address(0))) {
        if (lose_all || state & lose_states) {
            msleep(lost_ms);
            return -ETIMEDOUT;
        }
        if (swap_opcode && header->request.opcode == swap_opcode) {
            fill(answer, header, header->activity_id - 1, MANA_HW_STATUS_SUCCESS);
            return 0;
        }
        if (state & refuse_states) {
            fill(answer, header, header->activity_id, MANA_HW_STATUS_INVALID_PARAMETER);
            return -EPROTO;
        }
        if (state & BIT(MANA_HW_RNIC_QP_RESET)) {
            if (late && xchg(&found_late, handle_of(header)) != handle_of(header)) {
                fill(answer, header, 0, MANA_HW_STATUS_SUCCESS);
                return 0;
            }
            msleep(reset_ms);
        }
    }
    err = mana_gd_send_request(gc, length, request, room, answer);
    if (!err && state & BIT(MANA_HW_RNIC_QP_RESET)) atomic_inc(&resets);
    return err;
}

static void notrace redirect(unsigned long ip, unsigned long caller, struct ftrace_ops* ops,
                             struct ftrace_regs* regs) {
    if (!within_module(caller, THIS_MODULE))
        ftrace_regs_set_instruction_pointer(regs, (unsigned long)send);
}

static unsigned char hooked[] = "mana_gd_send_request";
static struct ftrace_ops hook = {.func = redirect,
                                 .flags = FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY};

/* A UD queue pair of the kernel, with a receive posted. */
struct owner {
    struct ib_device* device;
    struct ib_pd* pd;
    struct ib_cq* cq;
    struct ib_qp* qp;
    void* buffer;
    u64 address;
    struct work_struct end;
    struct kprobe probe;
    struct task_struct* poller;
    bool posted;  // by the probe
    bool failed;  // the CQ
};

static int go_to(struct owner* owner, enum ib_qp_state state, int mask) {
    struct ib_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = 0x11111111};

    return ib_modify_qp(owner->qp, &attr, IB_QP_STATE | mask);
}

static void fail_cq(struct ib_event* event, void* context) {
    struct owner* owner = context;

    if (event->event == IB_EVENT_CQ_ERR) WRITE_ONCE(owner->failed, true);
}

/* Says how far it came; what is NULL or an error was not made. */
static const char* make(struct owner* owner) {
    struct ib_cq_init_attr cq_attr = {.cqe = entries};
    struct ib_qp_init_attr qp_attr = {
        .qp_type = IB_QPT_UD,
        .sq_sig_type = IB_SIGNAL_ALL_WR,
        .port_num = 1,
        .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

    owner->pd = ib_alloc_pd(owner->device, 0);
    if (IS_ERR(owner->pd)) return "no PD";
    owner->cq = ib_create_cq(owner->device, NULL, fail_cq, owner, &cq_attr);
    if (IS_ERR(owner->cq)) return "no CQ";
    if (full) qp_attr.cap.max_recv_wr = entries;
    qp_attr.send_cq = owner->cq;
    qp_attr.recv_cq = owner->cq;
    owner->qp = ib_create_qp(owner->pd, &qp_attr);
    if (IS_ERR(owner->qp)) return "no QP";
    owner->buffer = kzalloc(BUFFER_BYTES, GFP_KERNEL);
    if (!owner->buffer) return "no buffer";
    owner->address = ib_dma_map_single(owner->device, owner->buffer, BUFFER_BYTES, DMA_FROM_DEVICE);
    if (ib_dma_mapping_error(owner->device, owner->address)) {
        kfree(owner->buffer);
        owner->buffer = NULL;
        return "no address";
    }
    if (go_to(owner, IB_QPS_INIT, IB_QP_PORT | IB_QP_PKEY_INDEX | IB_QP_QKEY) ||
        go_to(owner, IB_QPS_RTR, 0) || go_to(owner, IB_QPS_RTS, IB_QP_SQ_PSN))
        return "not in RTS";
    return NULL;
}

static void unmake(struct owner* owner) {
    if (!IS_ERR_OR_NULL(owner->qp)) ib_destroy_qp(owner->qp);
    if (!IS_ERR_OR_NULL(owner->cq)) ib_destroy_cq(owner->cq);
    if (!IS_ERR_OR_NULL(owner->pd)) ib_dealloc_pd(owner->pd);
    if (owner->buffer) {
        ib_dma_unmap_single(owner->device, owner->address, BUFFER_BYTES, DMA_FROM_DEVICE);
        kfree(owner->buffer);
    }
}

static bool masters_bus(const struct ib_device* device) {
    u16 command;

    pci_read_config_word(to_pci_dev(device->dev.parent), PCI_COMMAND, &command);
    return command & PCI_COMMAND_MASTER;
}

static void end(struct work_struct* work) {
    go_to(container_of(work, struct owner, end), IB_QPS_ERR, 0);
}

static int post(struct owner* owner, u64 id) {
    struct ib_sge sge = {
        .addr = owner->address, .length = BUFFER_BYTES, .lkey = owner->pd->local_dma_lkey};
    struct ib_recv_wr receive = {.sg_list = &sge, .num_sge = 1, .wr_id = id};

    return ib_post_recv(owner->qp, &receive, NULL);
}

/* Takes the queue pair with a receive to ERR, and looks when the receive comes back. */
static void run(struct owner* owner) {
    unsigned long limit = jiffies + msecs_to_jiffies(WAIT_MS);
    struct ib_wc wc;

    if (post(owner, 1)) {
        strscpy(verdict, "no receive", sizeof verdict);
        return;
    }
    atomic_set(&resets, 0);
    INIT_WORK(&owner->end, end);
    schedule_work(&owner->end);
    while (!ib_poll_cq(owner->cq, 1, &wc) && time_before(jiffies, limit)) usleep_range(500, 1000);
    if (time_before(jiffies, limit))
        scnprintf(verdict, sizeof verdict, "back: status=%d ended=%d masters=%d", wc.status,
                  atomic_read(&resets) > 0, masters_bus(owner->device));
    else
        strscpy(verdict, "not back", sizeof verdict);
    flush_work(&owner->end);
}

/* Where mana_ib looks for the queue pair of an entry. There is room once one before was polled. */
static int post_within(struct kprobe* probe, struct pt_regs* regs) {
    struct owner* owner = container_of(probe, struct owner, probe);

    if (current != owner->poller || owner->posted || post(owner, entries)) return 0;
    owner->posted = true;
    mdelay(DEVICE_MS);  // in which the device completes it
    return 0;
}

/* Polls in the order of their posts those that are back, until all are or none will be. */
static u32 poll_all(struct owner* owner, struct ib_wc* wc) {
    unsigned long limit = jiffies + msecs_to_jiffies(WAIT_MS);
    u32 back = 0;

    while (back <= entries && !READ_ONCE(owner->failed) && time_before(jiffies, limit)) {
        const int polled = ib_poll_cq(owner->cq, entries, wc);
        int i;

        for (i = 0; i < polled; i++)
            if (wc[i].wr_id == back && wc[i].status == IB_WC_WR_FLUSH_ERR) back++;
        if (!polled) usleep_range(500, 1000);
    }
    return back;
}

/* The device completes all receives when it takes the queue pair to ERR. */
static void fill_cq(struct owner* owner) {
    struct ib_wc* wc = kcalloc(entries, sizeof *wc, GFP_KERNEL);
    u32 back, i;

    for (i = 0; wc && i < entries; i++)
        if (post(owner, i)) break;
    owner->poller = current;
    owner->probe.symbol_name = "xa_load";
    owner->probe.pre_handler = post_within;
    if (i < entries || go_to(owner, IB_QPS_ERR, 0) || register_kprobe(&owner->probe)) {
        strscpy(verdict, "no full CQ", sizeof verdict);
    } else {
        back = poll_all(owner, wc);
        unregister_kprobe(&owner->probe);
        scnprintf(verdict, sizeof verdict, "back: %u of %u", back, entries + owner->posted);
    }
    kfree(wc);
}

/* After the event of a fatal error. The driver's structure begins with that of the core. */
static int state_after_event(struct owner* owner) {
    void (*tell)(struct ib_device*, u32 id, u32 word) = (void*)handler;
    struct ib_qp_init_attr init;
    struct ib_qp_attr attr;
    unsigned long flags;

    local_irq_save(flags);
    tell(owner->device, owner->qp->qp_num, 0);
    local_irq_restore(flags);
    return ib_query_qp(owner->qp, &attr, IB_QP_STATE, &init) ?: (int)attr.qp_state;
}

/* The event comes, and once more when the queue pair was reset. */
static void end_twice(struct owner* owner) {
    const int ended = state_after_event(owner);
    const int reset = go_to(owner, IB_QPS_RESET, 0) ?: state_after_event(owner);

    scnprintf(verdict, sizeof verdict, "states: %d %d", ended, reset);
}

/* A device that there is. */
struct known {
    struct list_head others;
    struct ib_event_handler handler;
};
static LIST_HEAD(all_known);
static DEFINE_MUTEX(known_lock);

/* Held until ib_device_put(). */
static struct ib_device* get_device_by_name(const char* name) {
    struct ib_device* found = NULL;
    struct known* known;

    mutex_lock(&known_lock);
    list_for_each_entry(known, &all_known, others) {
        struct ib_device* const device = known->handler.device;

        if (!strcmp(dev_name(&device->dev), name) && ib_device_try_get(device)) found = device;
    }
    mutex_unlock(&known_lock);
    return found;
}

static int set_device(const char* value, const struct kernel_param* parameter) {
    struct owner* owner = kzalloc(sizeof *owner, GFP_KERNEL);
    char name[IB_DEVICE_NAME_MAX];
    const char* failed;

    if (!owner) return -ENOMEM;
    strscpy(name, value, sizeof name);
    owner->device = get_device_by_name(strim(name));
    if (!owner->device) {
        kfree(owner);
        return -ENODEV;
    }
    strscpy(verdict, "begun", sizeof verdict);
    failed = make(owner);
    if (failed)
        strscpy(verdict, failed, sizeof verdict);
    else if (handler)
        end_twice(owner);
    else if (full)
        fill_cq(owner);
    else
        run(owner);
    unmake(owner);
    ib_device_put(owner->device);
    kfree(owner);
    return 0;
}

static const struct kernel_param_ops device_ops = {.set = set_device};
module_param_cb(device, &device_ops, NULL, 0200);
MODULE_PARM_DESC(device, "a queue pair of it is made, and comes to its end");

static struct net_device* hidden;  // interface of the first port

/* The parent's table of interfaces; NULL if there is no function with a driver. */
static struct net_device** get_ports(void) {
    struct pci_dev* const function =
        pci_get_device(MANA_HW_PCI_VENDOR, MANA_HW_PCI_DEVICE_VF, NULL);
    struct gdma_context* const gc = function ? pci_get_drvdata(function) : NULL;
    struct mana_context* const ethernet = gc ? gc->mana.driver_data : NULL;

    pci_dev_put(function);
    return ethernet ? ethernet->ports : NULL;
}

static int set_hide_port(const char* value, const struct kernel_param* parameter) {
    struct net_device** const ports = get_ports();
    bool hide;

    if (!ports) return -ENODEV;
    if (kstrtobool(value, &hide) || hide == !!hidden) return -EINVAL;
    hidden = xchg(&ports[0], hidden);
    return 0;
}

static const struct kernel_param_ops hide_port_ops = {.set = set_hide_port};
module_param_cb(hide_port, &hide_port_ops, NULL, 0200);
MODULE_PARM_DESC(hide_port, "the parent has no interface of its first port; mana_ib comes after");

static void event(struct ib_event_handler* handler, struct ib_event* told) {
    unsigned long flags;
    size_t told_of;

    if (told->event != IB_EVENT_DEVICE_FATAL) return;
    spin_lock_irqsave(&fatal_lock, flags);
    told_of = strlen(fatal);
    scnprintf(fatal + told_of, sizeof fatal - told_of, "%s ", dev_name(&told->device->dev));
    spin_unlock_irqrestore(&fatal_lock, flags);
}

static struct ib_client client;

static int come(struct ib_device* device) {
    struct known* known = kzalloc(sizeof *known, GFP_KERNEL);

    if (!known) return -ENOMEM;
    INIT_IB_EVENT_HANDLER(&known->handler, device, event);
    ib_register_event_handler(&known->handler);
    mutex_lock(&known_lock);
    list_add(&known->others, &all_known);
    mutex_unlock(&known_lock);
    ib_set_client_data(device, &client, known);
    return 0;
}

static void leave(struct ib_device* device, void* data) {
    struct known* known = data;

    mutex_lock(&known_lock);
    list_del(&known->others);
    mutex_unlock(&known_lock);
    ib_unregister_event_handler(&known->handler);
    kfree(known);
}

static struct ib_client client = {
    .name = "given_up", .add = come, .remove = leave, .no_kverbs_req = true};

static int __init given_up_init(void) {
    int err;

    err = ib_register_client(&client);
    if (err) return err;
    err = ftrace_set_filter(&hook, hooked, sizeof hooked - 1, 1);
    if (!err) err = register_ftrace_function(&hook);
    if (err) ib_unregister_client(&client);
    return err;
}

static void __exit given_up_exit(void) {
    unregister_ftrace_function(&hook);
    ib_unregister_client(&client);
}

module_init(given_up_init);
module_exit(given_up_exit);
MODULE_DESCRIPTION("Test of mana_ib: requests without answers");
MODULE_LICENSE("GPL");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("NET_MANA");
#else
MODULE_IMPORT_NS(NET_MANA);
#endif
