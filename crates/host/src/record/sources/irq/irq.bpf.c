/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
COUNT(irq_handler_entry)
COUNT(local_timer_entry)
COUNT(reschedule_entry)
COUNT(call_function_entry)
COUNT(call_function_single_entry)
COUNT(irq_work_entry)

#define SOFTIRQS 10
const volatile __u16 slots_softirq[SOFTIRQS] = {
	NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT, NO_SLOT,
};

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry, unsigned int vector)
{
	__u32 index = vector;
	barrier_var(index);
	if (index < SOFTIRQS)
		count(slots_softirq[index]);
	return 0;
}
