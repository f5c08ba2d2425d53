/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counters that are read: perf events (hardware, software) and the kernel's steal clock. */

/* The absolute counter after the perf events is the steal clock. */
const volatile bool with_steal = false;

/* The scheduler's steal time on this CPU in nanoseconds, updated at each tick. It is reached through
 * the running task: the kernel's own table is found only where all symbols are available. */
static __always_inline bool read_steal(__u64 *steal)
{
	struct rq *rq = queue_of(bpf_get_current_task_btf());
	if (!rq || !bpf_core_field_exists(struct rq, prev_steal_time))
		return false;
	*steal = rq->prev_steal_time;
	return true;
}

static __always_inline bool read_absolute(__u32 i, struct absolute *now)
{
	if (i < perf_events) {
		struct bpf_perf_event_value value = {};
		__u32 key = bpf_get_smp_processor_id() * MAX_ABSOLUTE + i;
		if (bpf_perf_event_read_value(&perf, key, &value, sizeof(value)))
			return false;
		now->total = value.counter;
		now->enabled = value.enabled;
		now->running = value.running;
		return true;
	}
	if (with_steal && i == perf_events) {
		now->enabled = now->running = 0;
		return read_steal(&now->total);
	}
	return false;
}

#define ABSOLUTES (perf_events + (with_steal ? 1 : 0))

static __always_inline void start_counting(struct cpu_state *s, __u64 now)
{
	for (__u32 i = 0; i < ABSOLUTES && i < MAX_ABSOLUTE; i++) {
		struct absolute value;
		if (read_absolute(i, &value))
			s->last[i] = value;
	}
	s->since_ns = now;
}

static __always_inline void stop_counting(struct cpu_state *s, __u64 now)
{
	for (__u32 i = 0; i < ABSOLUTES && i < MAX_ABSOLUTE; i++) {
		struct absolute value;
		if (!read_absolute(i, &value))
			continue;
		s->sum[i].total += value.total - s->last[i].total;
		s->sum[i].enabled += value.enabled - s->last[i].enabled;
		s->sum[i].running += value.running - s->last[i].running;
		s->last[i] = value;
	}
	s->run_ns += now - s->since_ns;
	s->since_ns = 0;
}

static __always_inline void fill_absolute(struct row *row, struct cpu_state *s)
{
	for (__u32 i = 0; i < ABSOLUTES && i < MAX_ABSOLUTE; i++) {
		struct absolute value;
		__u32 slot = absolute_slot + 3 * i;
		if (slot + 2 >= slots || slot + 2 >= MAX_SLOTS)
			return;
		if ((filter && !s->since_ns) || !read_absolute(i, &value)) {
			/* A counter that cannot be read, or whose events are no target's, keeps
			 * its last value, and so has run for no time. */
			value = s->last[i];
		}
		row->values[slot] = s->sum[i].total + value.total - s->last[i].total;
		row->values[slot + 1] = s->sum[i].enabled + value.enabled - s->last[i].enabled;
		row->values[slot + 2] = s->sum[i].running + value.running - s->last[i].running;
	}
}
