/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The program that runs on the overflow of the reference event makes the row. All other programs
 * only count, each CPU in its own memory. Where an event that they count ends the intervals, they
 * make the rows (event_rows.h). */
#include "recorder.h"
#include "targets.h"
#include "stacks.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

/* Set before loading; the verifier sees constants and removes unused code. */
const volatile __u32 rows_per_cpu = 1;
const volatile __u64 period = 1;
const volatile __u32 slots = 0;
/* The reference is a time; a row of targets holds at least half a period of it. */
const volatile bool of_time = false;
/* The first `perf_events` of the absolute counters are in the map `perf`. */
const volatile __u32 perf_events = 0;
/* Where the first absolute counter's three values go in the row. */
const volatile __u32 absolute_slot = NO_SLOT;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/* rows_per_cpu rows for each CPU; the size of a row is set before loading. The stack is after the
 * values. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct row) + MAX_SLOTS * sizeof(__u64) + sizeof(struct row_stack));
} rows SEC(".maps");

/* MAX_ABSOLUTE entries for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} perf SEC(".maps");

static __always_inline void end_interval(struct cpu_state *s);

/* What a program counts in. An interval that has ended gets its row first. */
static __always_inline struct cpu_state *this_cpu(void)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *s = bpf_map_lookup_elem(&cpus, &cpu);
	if (s)
		end_interval(s);
	return s;
}

static __always_inline void start_counting(struct cpu_state *s, __u64 now);

/* A target runs, but the switch to it was not seen: it was already running when it became a
 * target, or the kernel hides the task before it from tracing. Between the tracepoint of a switch
 * and the switch itself, the leaving task is still the current one, but not the CPU's any more. */
static __noinline bool target_runs_unseen(struct cpu_state *s)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct rq *rq = queue_of(task);
	if (!is_target(task->tgid) || !rq || rq->curr != task)
		return false;
	start_counting(s, bpf_ktime_get_ns());
	return true;
}

static __always_inline bool counts(struct cpu_state *s)
{
	return !filter || s->since_ns || target_runs_unseen(s);
}

#include "event_rows.h"

/* The addition is not atomic: a slot is only written where its program cannot interrupt itself. */
static __always_inline void add_counted(struct cpu_state *s, __u16 slot, __u64 amount)
{
	if (of_event && slot == reference_slot)
		count_reference(s);
	else if (slot < MAX_SLOTS)
		s->values[slot] += amount;
}

static __always_inline void add_to(struct cpu_state *s, __u16 slot, __u64 amount)
{
	if (slot < MAX_SLOTS && counts(s))
		add_counted(s, slot, amount);
}

static __always_inline void count(__u16 slot)
{
	struct cpu_state *s = this_cpu();
	if (!s)
		return;
	add_to(s, slot, 1);
	end_interval(s);
}

/* Define a program that counts one tracepoint. */
#define COUNT(tracepoint)                                   \
	const volatile __u16 slot_##tracepoint = NO_SLOT;   \
	SEC("tp_btf/" #tracepoint)                          \
	int on_##tracepoint(void *ctx)                      \
	{                                                   \
		count(slot_##tracepoint);                   \
		return 0;                                   \
	}

/* The programs of all sources; build.rs lists them. */
#include "sources.h"

static __always_inline __u32 layer_of(struct cpu_state *s, bool user)
{
	if (s->entry_ns || s->interrupted)
		return guest_layer(s);
	if (user)
		return LAYER_HOST_USER;
	if (s->exit_ns)
		return LAYER_VMM_KERNEL;
	if (!(__u32)bpf_get_current_pid_tgid())
		return LAYER_IDLE;
	return LAYER_HOST_KERNEL;
}

/* Copies the counters. Running times are added only in the row, so that this program, which may
 * interrupt the others, changes none of their data. */
static __always_inline void fill_values(struct row *row, struct cpu_state *s, __u64 now)
{
	for (__u32 i = 0; i < slots && i < MAX_SLOTS; i++)
		row->values[i] = s->values[i];
	fill_guest_time(row, s, now);
	fill_absolute(row, s);
}

/* The next row of this CPU, filled but for what only the caller knows; 0: the ring is full. */
static __always_inline struct row *begin_row(struct cpu_state *s, __u64 now, __u64 run)
{
	__u32 cpu = bpf_get_smp_processor_id();
	__u64 seq = s->seq++;
	__u64 head = s->head;
	if (head - *(volatile __u64 *)&s->tail >= rows_per_cpu) {
		s->dropped++;
		return 0;
	}
	__u32 key = cpu * rows_per_cpu + (head & (rows_per_cpu - 1));
	struct row *row = bpf_map_lookup_elem(&rows, &key);
	if (!row)
		return 0;
	/* Targets that have left the CPU may make a row later than that. */
	bool left = filter && !s->since_ns;
	__u64 task = left ? s->left : bpf_get_current_pid_tgid();
	row->seq = seq;
	row->time_ns = now;
	row->run_ns = run;
	row->cpu = cpu;
	row->pid = task >> 32;
	row->tid = (__u32)task;
	row->vm = s->vm;
	row->vcpu = s->vm ? s->vcpu : -1;
	if (left)
		__builtin_memcpy(row->comm, s->left_comm, sizeof(row->comm));
	else
		bpf_get_current_comm(row->comm, sizeof(row->comm));
	fill_values(row, s, now);
	return row;
}

/* The row must be visible before the head. A store-release needs Linux 6.15; an exchange is a full
 * barrier on every processor. */
static __always_inline void publish_row(struct cpu_state *s)
{
	__atomic_exchange_n(&s->head, s->head + 1, __ATOMIC_SEQ_CST);
}

static __always_inline void fill_interval_row(struct cpu_state *s)
{
	__u64 now = bpf_ktime_get_ns(), run = now;
	if (filter)
		run = s->run_ns + (s->since_ns ? now - s->since_ns : 0);
	/* Where no target ran since the last row there is nothing to tell. */
	if (filter && run == s->row_ns)
		return;
	struct row *row = begin_row(s, now, run);
	s->row_ns = run;
	if (!row)
		return;
	row->interval = s->number + 1;
	/* No perf event is the reference. */
	row->enabled_ns = row->running_ns = 0;
	row->layer = layer_of(s, false);
	publish_row(s);
}

static __noinline int make_row(struct cpu_state *s, __u64 number)
{
	__u32 making = s->making;
	s->making = 1;
	barrier();
	/* An interrupt may have made this row after the caller saw that it was due. */
	if (number > s->number) {
		fill_interval_row(s);
		s->number = number;
	}
	barrier();
	s->making = making;
	return 0;
}

/* User space runs it on each CPU at the end: a CPU that has counted nothing since has not made the
 * row of what it counted before. */
SEC("raw_tp")
int finish_interval(void *ctx)
{
	struct cpu_state *s = this_cpu();
	if (s)
		end_interval(s);
	return 0;
}

SEC("perf_event")
int on_overflow(struct bpf_perf_event_data *ctx)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *s = bpf_map_lookup_elem(&cpus, &cpu);
	if (!s)
		return 0;
	__u64 now = bpf_ktime_get_ns(), run = now;
	if (filter) {
		if (!s->since_ns) {
			target_runs_unseen(s);
			return 0;
		}
		run = s->run_ns + (now - s->since_ns);
		/* The event counts whatever the CPU does: targets that came late wait for the
		 * next row. */
		if (of_time && run - s->row_ns < period / 2)
			return 0;
		s->row_ns = run;
	}
	struct row *row = begin_row(s, now, run);
	if (!row)
		return 0;
	struct bpf_perf_event_value reference = {};
	bpf_perf_prog_read_value((void *)ctx, &reference, sizeof(reference));
	row->interval = reference.counter / period;
	row->enabled_ns = reference.enabled;
	row->running_ns = reference.running;
	row->layer = layer_of(s, IN_USER_MODE(ctx->regs));
	if (with_stacks && slots <= MAX_SLOTS)
		fill_stack((void *)(row->values + slots), ctx, row->layer >= LAYER_GUEST);
	publish_row(s);
	return 0;
}
