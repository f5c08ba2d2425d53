/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
const volatile __u16 slot_sched_switch = NO_SLOT;
const volatile __u16 slot_sched_preempted = NO_SLOT;

static __always_inline void leave_target(struct cpu_state *s)
{
	if (of_event) {
		s->left = bpf_get_current_pid_tgid();
		bpf_get_current_comm(s->left_comm, sizeof(s->left_comm));
	}
	stop_counting(s, bpf_ktime_get_ns());
}

/* Also records where targets run, and that a vCPU's thread has left. */
SEC("tp_btf/sched_switch")
int BPF_PROG(on_sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct cpu_state *s = this_cpu();
	if (!s)
		return 0;
	add_to(s, slot_sched_switch, 1);
	if (preempt)
		add_to(s, slot_sched_preempted, 1);
	end_interval(s);
	s->entry_ns = 0;
	s->exit_ns = 0;
	s->vm = 0;
	s->interrupted = 0;
	if (!filter || !next)
		return 0;
	bool target = is_target(next->tgid);
	if (target && !s->since_ns)
		start_counting(s, bpf_ktime_get_ns());
	else if (!target && s->since_ns)
		leave_target(s);
	return 0;
}

const volatile __u16 slot_sched_process_fork = NO_SLOT;

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	count(slot_sched_process_fork);
	if (!filter || !parent || !child)
		return 0;
	__u32 from = parent->tgid, to = child->tgid;
	if (from != to && is_target(from))
		set_target(to, true);
	return 0;
}

const volatile __u16 slot_sched_process_exit = NO_SLOT;

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_sched_process_exit, struct task_struct *task)
{
	count(slot_sched_process_exit);
	/* The number may be reused when the last thread is gone. */
	if (filter && task && task->signal->live.counter == 0)
		set_target(task->tgid, false);
	return 0;
}

COUNT(sched_wakeup)
COUNT(sched_migrate_task)
COUNT(sched_process_exec)
