/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
COUNT(page_fault_kernel)

const volatile __u16 slot_page_fault_user = NO_SLOT;
const volatile __u16 slot_fault_anonymous = NO_SLOT;
const volatile __u16 slot_fault_file = NO_SLOT;
const volatile __u16 slot_fault_cow = NO_SLOT;

/* Only x86's code passes the tracepoint. */
#if defined(__TARGET_ARCH_x86)
#include "kinds.h"
#define STACK(regs) ((regs)->sp)
#else
#define STACK(regs) 0
static __always_inline __u16 kind_of_fault(__u64 address, __u64 stack, __u64 error)
{
	return NO_SLOT;
}
#endif

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_page_fault_user, unsigned long address, struct pt_regs *regs, unsigned long error)
{
	struct cpu_state *s = this_cpu();
	if (!s || !regs || !counts(s))
		return 0;
	add_to(s, slot_page_fault_user, 1);
	if (slot_fault_anonymous != NO_SLOT || slot_fault_file != NO_SLOT ||
	    slot_fault_cow != NO_SLOT)
		add_to(s, kind_of_fault(address, STACK(regs), error), 1);
	end_interval(s);
	return 0;
}
