/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* enum tlb_flush_reason, include/linux/mm_types.h. */
#define TLB_REASONS 8
const volatile __u16 slots_tlb[TLB_REASONS] = {
	NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT,
};

SEC("tp_btf/tlb_flush")
int BPF_PROG(on_tlb_flush, int reason, unsigned long pages)
{
	__u32 index = reason;
	barrier_var(index);
	if (index < TLB_REASONS)
		count(slots_tlb[index]);
	return 0;
}
