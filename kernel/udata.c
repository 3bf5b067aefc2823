// SPDX-License-Identifier: GPL-2.0
/* Everything that is copied from and to user space. */
#include "udata.h"
#include "pd.h"

#include <linux/uaccess.h>

/**
 * mana_ib_udata_in - takes over what the provider sent with a command
 * @udata: of the command
 * @request: where to; what was not sent is zero
 * @bytes: known size
 * @minimum: size below which the command is malformed
 *
 * More than @bytes may be sent if it is zero: a newer provider that does not
 * use what we do not know.
 */
int mana_ib_udata_in(struct ib_udata *udata, void *request, size_t bytes,
		     size_t minimum)
{
	return _ib_copy_validate_udata_in(udata, request, bytes, minimum);
}

/**
 * mana_ib_udata_in_parts - the same, of a stock part and ours behind it
 * @udata: of the command
 * @request: where to; what was not sent is zero
 * @bytes: of both
 * @stock: of the stock part, which is always sent
 *
 * In a context that does not speak ours, what is behind the stock part is of a stock
 * provider that is newer, and has to be zero.
 */
int mana_ib_udata_in_parts(struct ib_udata *udata, void *request, size_t bytes,
			   size_t stock)
{
	memset(request, 0, bytes);
	return mana_ib_udata_in(udata, request,
				mana_ib_speaks_ours(udata) ? bytes : stock,
				stock);
}

/**
 * mana_ib_udata_out - answers a command with what the provider has room for
 * @udata: of the command
 * @response: answer
 * @bytes: of @response; room beyond is what we do not know, and becomes zero
 */
int mana_ib_udata_out(struct ib_udata *udata, const void *response,
		      size_t bytes)
{
	return _ib_respond_udata(udata, response, bytes);
}

/**
 * mana_ib_command_prepare - finds out in time that neither answer fails
 * @udata: of a command that has a structure of the core; methods have none
 *
 * For a command that is not undone when its answer fails.
 */
int mana_ib_command_prepare(struct ib_udata *udata)
{
	const struct ib_udata *core =
		&rdma_udata_to_uverbs_attr_bundle(udata)->ucore;

	if (clear_user(core->outbuf, core->outlen))
		return -EFAULT;
	return ib_respond_empty_udata(udata);
}

/**
 * mana_ib_udata_empty - a command of which the provider's part has no meaning yet
 * @udata: of the command; NULL: of the kernel
 *
 * Zero is the answer, where there is room for one.
 */
int mana_ib_udata_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata) ? : ib_respond_empty_udata(udata);
}

/**
 * mana_ib_attr_in - takes over an attribute of a method
 * @attrs: of the method
 * @id: of the attribute
 * @value: where to
 * @bytes: of @value; what was not sent is zero
 */
int mana_ib_attr_in(const struct uverbs_attr_bundle *attrs, u16 id, void *value,
		    size_t bytes)
{
	return _uverbs_copy_from(value, attrs, id, bytes);
}

/**
 * mana_ib_attr_out - answers with an attribute of a method
 * @attrs: of the method
 * @id: of the attribute
 * @value: answer
 * @bytes: of @value
 */
int mana_ib_attr_out(const struct uverbs_attr_bundle *attrs, u16 id,
		     const void *value, size_t bytes)
{
	return uverbs_copy_to(attrs, id, value, bytes);
}

/**
 * mana_ib_attr_out_struct - the same with a structure that grows
 * @attrs: of the method
 * @id: of the attribute
 * @value: answer
 * @bytes: of @value; room beyond becomes zero
 */
int mana_ib_attr_out_struct(const struct uverbs_attr_bundle *attrs, u16 id,
			    const void *value, size_t bytes)
{
	return uverbs_copy_to_struct_or_zero(attrs, id, value, bytes);
}

/**
 * mana_ib_memory_in - reads memory of the process
 * @to: where to
 * @address: of the process
 * @bytes: how much
 */
int mana_ib_memory_in(void *to, u64 address, size_t bytes)
{
	return copy_from_user(to, u64_to_user_ptr(address), bytes) ? -EFAULT :
								     0;
}

/**
 * mana_ib_memory_out - writes memory of the process
 * @address: of the process
 * @from: what
 * @bytes: how much
 */
int mana_ib_memory_out(u64 address, const void *from, size_t bytes)
{
	return copy_to_user(u64_to_user_ptr(address), from, bytes) ? -EFAULT :
								     0;
}
