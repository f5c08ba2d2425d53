/* enum tlb_flush_reason, include/linux/mm_types.h. */
#define TLB_REASONS 8
const volatile __u16 slots_tlb[TLB_REASONS] = {
	NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT,
};

SEC("tp_btf/tlb_flush")
int BPF_PROG(on_tlb_flush, int reason, unsigned long pages)
{
	if (reason >= 0 && reason < TLB_REASONS)
		count(slots_tlb[reason]);
	return 0;
}
