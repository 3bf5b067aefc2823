// SPDX-License-Identifier: GPL-2.0
/*
 * The parent, mana.ko. This file alone opens its structures. Beside what the parent
 * exports, it touches what the parent keeps to itself, each for a reason:
 * - the table of CQs (cq_table): the parent's interrupts look a CQ up there, and
 *   there is no function to enter one;
 * - the flag of an EQ that it is to be disabled, and its memory: the parent frees
 *   that whatever the device answers;
 * - how long requests wait for answers (hwc_timeout), see mana_ib_lost(), and
 *   whether the function masters the bus, see mana_ib_cut_off();
 * - how many frames a port waits for (pending_sends), see
 *   mana_ib_parent_forget_frames();
 * - addresses of doorbell pages, which are mapped into processes.
 */
#include "parent.h"

#include <linux/pci.h>
#include <linux/rtnetlink.h>

/**
 * struct mana_ib_hook - an entry of ours in the parent's table of CQs
 * @entry: what the parent sees
 * @lock: held while @callback runs, so that whoever takes it away knows that it
 *	does not
 * @callback: NULL once the CQ is muted
 * @context: for @callback
 * @rcu: the parent may look at @entry until a grace period is over
 */
struct mana_ib_hook {
	struct gdma_queue entry;
	spinlock_t lock; /* callback, while it runs too */
	void (*callback)(void *context);
	void *context;
	struct rcu_head rcu;
};

/**
 * mana_ib_parent_attach - finds out what an auxiliary device stands for
 * @dev: device, zeroed but for the core's part
 * @mdev: GDMA device that the auxiliary device names
 *
 * Where the parent leaves that to us, the RDMA device is registered.
 */
int mana_ib_parent_attach(struct mana_ib_dev *dev, struct gdma_dev *mdev)
{
	struct gdma_context *gc = mdev->gdma_context;
	int err;

	dev->gdev = compat_rdma_device(mdev);
	dev->gc = gc;
	dev->eth = gc->mana.driver_data;
	dev->parent = gc->dev;
	if (dev->gdev != mdev) {
		err = compat_register_device(dev->gdev);
		if (err)
			return err;
		dev->registered = true;
	}
	dev->node = gc->numa_node;
	dev->part_id = dev->gdev->dev_id.type;
	dev->vectors = max(1U, gc->max_num_queues);
	dev->doorbell_page = dev->gdev->doorbell;
	dev->doorbells = gc->db_page_base +
			 (size_t)gc->db_page_size * dev->doorbell_page;
	dev->rdma = dev->part_id == GDMA_DEVICE_MANA_IB;
	dev->raw = !dev->rdma || COMPAT_RAW_WITH_RDMA;
	dev->page_sizes = SZ_4M - SZ_4K;
	if (compat_big_pages(gc))
		dev->page_sizes |= SZ_4M | SZ_1G | SZ_2G;
	return 0;
}

/**
 * mana_ib_parent_detach - undoes mana_ib_parent_attach()
 * @dev: device that sends no more requests
 */
void mana_ib_parent_detach(struct mana_ib_dev *dev)
{
	if (dev->registered)
		compat_deregister_device(dev->gdev);
	dev->registered = false;
}

/**
 * mana_ib_parent_is_present - whether the function is still there
 * @dev: device
 */
bool mana_ib_parent_is_present(const struct mana_ib_dev *dev)
{
	return pci_device_is_present(to_pci_dev(dev->parent));
}

/**
 * mana_ib_parent_masters_bus - whether the function can reach memory
 * @dev: device
 */
bool mana_ib_parent_masters_bus(const struct mana_ib_dev *dev)
{
	struct pci_dev *pdev = to_pci_dev(dev->parent);
	u16 command;

	if (!pci_device_is_present(pdev))
		return false;
	pci_read_config_word(pdev, PCI_COMMAND, &command);
	return command & PCI_COMMAND_MASTER;
}

/**
 * mana_ib_parent_cut_off - the function reaches no memory from now on
 * @dev: device
 *
 * Return: false if there is no function any more.
 */
bool mana_ib_parent_cut_off(struct mana_ib_dev *dev)
{
	struct pci_dev *pdev = to_pci_dev(dev->parent);

	if (!pci_device_is_present(pdev))
		return false;
	pci_clear_master(pdev);
	/* What it sent before, is there when its answers are. */
	pci_wait_for_pending_transaction(pdev);
	return true;
}

/**
 * mana_ib_parent_let_in - undoes mana_ib_parent_cut_off(), by a reset
 * @dev: device; what the function knows of memory, it forgets
 *
 * Return: an errno if it cannot be reset; then it stays cut off until the parent
 * starts it anew.
 */
int mana_ib_parent_let_in(struct mana_ib_dev *dev)
{
	struct pci_dev *pdev = to_pci_dev(dev->parent);
	int err;

	if (!pci_device_is_present(pdev))
		return 0;
	/*
	 * Programs neither see the function in between nor change it, and reset it
	 * before or after. No parent is called with this lock held: none has
	 * handlers of errors and resets.
	 */
	pci_cfg_access_lock(pdev);
	pci_save_state(pdev);
	err = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	if (!err)
		pci_set_master(pdev);
	pci_cfg_access_unlock(pdev);
	return err;
}

/**
 * mana_ib_parent_mtu - the largest frame that the NIC takes
 * @dev: device
 */
u32 mana_ib_parent_mtu(const struct mana_ib_dev *dev)
{
	return dev->gc->adapter_mtu;
}

/**
 * mana_ib_parent_doorbell_pfn - where a doorbell page is
 * @dev: device
 * @page: its number
 */
unsigned long mana_ib_parent_doorbell_pfn(const struct mana_ib_dev *dev,
					  u32 page)
{
	const struct gdma_context *gc = dev->gc;

	return PHYS_PFN(gc->phys_db_page_base +
			gc->db_page_size * (phys_addr_t)page);
}

/**
 * mana_ib_parent_device_id - what requests to our GDMA device are addressed with
 * @dev: device
 */
struct gdma_dev_id mana_ib_parent_device_id(const struct mana_ib_dev *dev)
{
	return dev->gdev->dev_id;
}

/**
 * mana_ib_parent_ethernet_id - the same of the Ethernet device beside it
 * @dev: device
 */
struct gdma_dev_id mana_ib_parent_ethernet_id(const struct mana_ib_dev *dev)
{
	return dev->gc->mana.dev_id;
}

/**
 * mana_ib_parent_request - sends a request and waits for the answer
 * @dev: device
 * @request_bytes: size
 * @request: with its header
 * @response_bytes: size
 * @response: where to
 */
int mana_ib_parent_request(struct mana_ib_dev *dev, u32 request_bytes,
			   const void *request, u32 response_bytes,
			   void *response)
{
	return mana_gd_send_request(dev->gc, request_bytes, request,
				    response_bytes, response);
}

/**
 * mana_ib_parent_waiting - how long answers are waited for
 * @dev: device
 *
 * Return: in ms, or 0 if the parent does not say.
 */
u32 mana_ib_parent_waiting(const struct mana_ib_dev *dev)
{
	return compat_waiting(dev->gc);
}

/**
 * mana_ib_parent_set_waiting - how long answers are waited for, Ethernet's too
 * @dev: device
 * @ms: from now on
 *
 * Return: what it was before, or 0 if the parent does not say.
 */
u32 mana_ib_parent_set_waiting(struct mana_ib_dev *dev, u32 ms)
{
	return compat_set_waiting(dev->gc, ms);
}

/**
 * mana_ib_parent_forget_frames - the device will never send what it was given
 * @dev: device that was reset, or is cut off, or is not there
 *
 * Each parent that ends waits two minutes for frames that the device has not sent,
 * and frees them then.
 */
void mana_ib_parent_forget_frames(struct mana_ib_dev *dev)
{
	struct mana_context *ac = dev->eth;
	struct mana_port_context *port;
	unsigned int i, j;

	rtnl_lock();
	for (i = 0; i < ac->num_ports; i++) {
		if (!ac->ports[i])
			continue;
		port = netdev_priv(ac->ports[i]);
		if (!port->tx_qp)
			continue;
		netif_tx_disable(ac->ports[i]);
		for (j = 0; j < port->num_queues; j++)
			atomic_set(&compat_txq(port, j)->pending_sends, 0);
	}
	rtnl_unlock();
}

/* Hard interrupt context. The parent hands on this type alone. */
static void mana_ib_parent_event(void *context, struct gdma_queue *queue,
				 struct gdma_event *event)
{
	struct mana_ib_dev *dev = context;

	if (event->type == MANA_HW_EQE_QP_FATAL)
		dev->on_event(dev, event->details[0], event->details[1]);
}

/**
 * mana_ib_parent_create_eq - makes an event queue
 * @dev: device; its on_event is called for asynchronous events
 * @ethernet: of the Ethernet device beside ours
 * @vector: interrupt; 0 is that of the channel for requests too
 * @eq: what was made
 */
int mana_ib_parent_create_eq(struct mana_ib_dev *dev, bool ethernet,
			     unsigned int vector, struct mana_ib_eq *eq)
{
	struct gdma_queue_spec spec = {
		.type = GDMA_EQ,
		.queue_size = MANA_IB_EQ_BYTES,
		.eq.callback = mana_ib_parent_event,
		.eq.context = dev,
		.eq.log2_throttle_limit = MANA_IB_EQ_LOG2_THROTTLE,
	};
	struct gdma_context *gc = dev->gc;
	int err;

	eq->memory = kzalloc(sizeof(*eq->memory), GFP_KERNEL);
	if (!eq->memory)
		return -ENOMEM;
	eq->msix = vector % gc->num_msix_usable;
	err = compat_get_interrupt(gc, &eq->msix);
	if (err)
		goto err_free;
	spec.eq.msix_index = eq->msix;
	err = mana_gd_create_mana_eq(ethernet ? &gc->mana : dev->gdev, &spec,
				     &eq->queue);
	if (err)
		goto err_put_interrupt;
	eq->ethernet = ethernet;
	eq->id = eq->queue->id;
	return 0;

err_put_interrupt:
	compat_put_interrupt(gc, eq->msix);
err_free:
	kfree(eq->memory);
	return err;
}

/**
 * mana_ib_parent_mute_eq - events of an EQ are nobody's any more
 * @dev: device
 * @eq: queue; on return no interrupt looks at it
 *
 * The parent would end the device's queue too, and free its memory whether the device
 * has confirmed that or not. So it ends one without either, and the memory waits in a
 * queue of a type that the parent has nothing to end of.
 */
void mana_ib_parent_mute_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq)
{
	eq->memory->type = GDMA_SQ;
	eq->memory->mem_info = eq->queue->mem_info;
	compat_keep_queue_memory(eq->queue);
	eq->queue->eq.disable_needed = false;
	mana_gd_destroy_queue(dev->gc, eq->queue);
	eq->queue = NULL;
}

/**
 * mana_ib_parent_free_eq - gives back what the parent has for an EQ
 * @dev: device
 * @eq: queue that was muted
 * @keep_memory: the device may still write to it
 */
void mana_ib_parent_free_eq(struct mana_ib_dev *dev, struct mana_ib_eq *eq,
			    bool keep_memory)
{
	if (keep_memory)
		compat_keep_queue_memory(eq->memory);
	mana_gd_destroy_queue(dev->gc, eq->memory);
	compat_put_interrupt(dev->gc, eq->msix);
	eq->memory = NULL;
}

/* Hard interrupt context, under RCU's read lock: the entry does not go meanwhile. */
static void mana_ib_parent_completion(void *context, struct gdma_queue *queue)
{
	struct mana_ib_hook *hook = context;
	unsigned long flags;

	spin_lock_irqsave(&hook->lock, flags);
	if (hook->callback)
		hook->callback(hook->context);
	spin_unlock_irqrestore(&hook->lock, flags);
}

/**
 * mana_ib_parent_make_hooks - a table beside the parent's: which entries are ours
 * @dev: first device of a function
 *
 * Return: to be freed with kvfree(); NULL if there is no memory.
 */
struct mana_ib_hook **mana_ib_parent_make_hooks(const struct mana_ib_dev *dev)
{
	return kvcalloc(dev->gc->max_num_cqs, sizeof(struct mana_ib_hook *),
			GFP_KERNEL);
}

/*
 * Puts an entry where there is none, or where one of ours is whose CQ is destroyed,
 * or about to be. Ethernet frees its entries at once: no other is looked into. The
 * function's hooks_lock is held.
 */
static bool mana_ib_enter_hook(struct mana_ib_dev *dev,
			       struct mana_ib_hook *made)
{
	struct mana_ib_hook **ours = &dev->function->hooks[made->entry.id];
	struct gdma_queue **place = &dev->gc->cq_table[made->entry.id];
	struct gdma_queue *old = READ_ONCE(*place);

	if (old && (!*ours || old != &(*ours)->entry ||
		    READ_ONCE((*ours)->callback)))
		return false;
	/* The parent's reader finds a whole entry: the exchange is a barrier. */
	if (cmpxchg(place, old, &made->entry) != old)
		return false;
	*ours = made;
	return true;
}

/**
 * mana_ib_parent_hook_cq - enters a CQ into the table that Ethernet uses too
 * @dev: device
 * @id: of the CQ
 * @callback: for completion events, in hard interrupt context
 * @context: for @callback
 * @hook: the entry
 *
 * Who has destroyed a CQ of this id may not have taken its entry out yet. Then this
 * one takes its place: nobody waits for a request of somebody else.
 *
 * Return: -EPROTO if the device has given an id that cannot be.
 */
int mana_ib_parent_hook_cq(struct mana_ib_dev *dev, u32 id,
			   void (*callback)(void *context), void *context,
			   struct mana_ib_hook **hook)
{
	struct mana_ib_function *function = dev->function;
	struct mana_ib_hook *made;
	bool entered;

	if (id >= dev->gc->max_num_cqs)
		return -EPROTO;
	made = kzalloc(sizeof(*made), GFP_KERNEL_ACCOUNT);
	if (!made)
		return -ENOMEM;
	spin_lock_init(&made->lock);
	made->callback = callback;
	made->context = context;
	made->entry.gdma_dev = dev->gdev;
	made->entry.type = GDMA_CQ;
	made->entry.id = id;
	made->entry.cq.context = made;
	made->entry.cq.callback = mana_ib_parent_completion;
	spin_lock(&function->hooks_lock);
	entered = mana_ib_enter_hook(dev, made);
	spin_unlock(&function->hooks_lock);
	if (!entered) {
		kfree(made);
		return -EPROTO;
	}
	*hook = made;
	return 0;
}

/**
 * mana_ib_parent_mute_cq - completion events of a CQ are nobody's any more
 * @hook: entry of the CQ; on return its callback is not called, or still running
 *
 * The lock tells that at once. A grace period would, too, but takes tens of
 * milliseconds, and a process may end with thousands of CQs.
 */
void mana_ib_parent_mute_cq(struct mana_ib_hook *hook)
{
	unsigned long flags;

	spin_lock_irqsave(&hook->lock, flags);
	WRITE_ONCE(hook->callback, NULL);
	spin_unlock_irqrestore(&hook->lock, flags);
}

/**
 * mana_ib_parent_unhook_cq - takes a CQ out of the table
 * @dev: device
 * @hook: entry of the CQ, which was muted before
 */
void mana_ib_parent_unhook_cq(struct mana_ib_dev *dev,
			      struct mana_ib_hook *hook)
{
	struct mana_ib_function *function = dev->function;
	u32 id = hook->entry.id;

	/* Unless the device has given the id to another CQ meanwhile. */
	spin_lock(&function->hooks_lock);
	cmpxchg(&dev->gc->cq_table[id], &hook->entry, NULL);
	if (function->hooks[id] == hook)
		function->hooks[id] = NULL;
	spin_unlock(&function->hooks_lock);
	kfree_rcu(hook, rcu);
}

/**
 * mana_ib_parent_ports - how many Ethernet ports of the function have an interface
 * @dev: device
 *
 * The parent goes on without those from the first one on that it cannot start.
 */
u32 mana_ib_parent_ports(const struct mana_ib_dev *dev)
{
	const struct mana_context *ac = dev->eth;
	u32 count = 0;

	while (count < ac->num_ports && ac->ports[count])
		count++;
	return count;
}

/**
 * mana_ib_parent_netdev - the interface of a port, or its master
 * @dev: device
 * @port: number, from 1 on
 *
 * Return: to be released with dev_put(); NULL if there is none.
 */
struct net_device *mana_ib_parent_netdev(const struct mana_ib_dev *dev,
					 u32 port)
{
	if (port > mana_ib_parent_ports(dev))
		return NULL;
	return compat_port_netdev(dev->eth, port - 1);
}

/**
 * mana_ib_parent_lower - the parent's own interface of a port
 * @dev: device
 * @port: number, from 1 on; there is such a port
 */
struct net_device *mana_ib_parent_lower(const struct mana_ib_dev *dev,
					u32 port)
{
	return dev->eth->ports[port - 1];
}

/**
 * mana_ib_parent_port - an Ethernet port
 * @dev: device
 * @port: number, from 1 on
 *
 * Return: NULL if there is no such port.
 */
struct mana_port_context *mana_ib_parent_port(const struct mana_ib_dev *dev,
					      u32 port)
{
	if (!port || port > mana_ib_parent_ports(dev))
		return NULL;
	return netdev_priv(dev->eth->ports[port - 1]);
}

/**
 * mana_ib_port_vport - what the device calls a port
 * @port: port
 */
u64 mana_ib_port_vport(const struct mana_port_context *port)
{
	return port->port_handle;
}

/**
 * mana_ib_port_tx_offset - what frames name the port by
 * @port: port
 */
u32 mana_ib_port_tx_offset(const struct mana_port_context *port)
{
	return port->tx_vp_offset;
}

/**
 * mana_ib_port_is_running - whether the port's interface is up
 * @port: port
 */
bool mana_ib_port_is_running(const struct mana_port_context *port)
{
	return netif_running(port->ndev);
}

/**
 * mana_ib_port_take - takes the transmit side of a port
 * @port: port
 * @pd_id: protection domain that it belongs to then
 * @doorbell_page: that its send queues are rung from
 */
int mana_ib_port_take(struct mana_port_context *port, u32 pd_id,
		      u32 doorbell_page)
{
	return compat_configure_vport(port, pd_id, doorbell_page);
}

/**
 * mana_ib_port_give - gives the transmit side of a port back
 * @port: port
 */
void mana_ib_port_give(struct mana_port_context *port)
{
	mana_uncfg_vport(port);
}
