/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counts wakeups and softirq time of the threads that user space has put into `threads`, and the
 * softirq time of every CPU. */

#include "kernel.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct thread {
	__u64 wakeups;
	__u64 softirq_ns;
};

struct cpu {
	__u64 softirq_ns;
	/* When the running softirq began (0: none runs), and in which thread's context. */
	__u64 since_ns;
	__u64 tid;
};

/* User space sets the sizes of both before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *woken)
{
	if (!woken)
		return 0;
	__u32 tid = woken->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		__sync_fetch_and_add(&thread->wakeups, 1);
	return 0;
}

static __always_inline struct cpu *this_cpu(void)
{
	__u32 number = bpf_get_smp_processor_id();
	return bpf_map_lookup_elem(&cpus, &number);
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry)
{
	struct cpu *cpu = this_cpu();
	if (!cpu)
		return 0;
	cpu->tid = (__u32)bpf_get_current_pid_tgid();
	cpu->since_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit)
{
	struct cpu *cpu = this_cpu();
	__u32 tid = bpf_get_current_pid_tgid();
	/* On a preemptible real-time kernel softirqs run in threads, which may change in between. */
	if (!cpu || !cpu->since_ns || cpu->tid != tid)
		return 0;
	__u64 spent = bpf_ktime_get_ns() - cpu->since_ns;
	cpu->since_ns = 0;
	cpu->softirq_ns += spent;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		__sync_fetch_and_add(&thread->softirq_ns, spent);
	return 0;
}
