/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Intervals that end with every `period`-th event of one kind on all CPUs together. The CPU of that
 * event makes its row at once. Each other CPU makes its own before it counts its next event of any
 * kind, so what it counted in an interval is in the row of that interval. A CPU that counted
 * nothing in an interval makes no row for it. */
#pragma once

const volatile bool of_event = false;
const volatile __u16 reference_slot = NO_SLOT;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct common);
} common SEC(".maps");

static __always_inline struct common *shared(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&common, &zero);
}

/* The row of the interval in which this CPU counts; `number`: in which it counts from here on. What
 * interrupts this makes no row. */
static __noinline int make_row(struct cpu_state *s, __u64 number);

static __always_inline void begin_interval(struct cpu_state *s, struct common *c, __u64 number)
{
	__u64 end = *(volatile __u64 *)&c->end;
	if (end && number >= end)
		number = end - 1;
	if (number > s->number && !*(volatile __u64 *)&c->stopped)
		make_row(s, number);
}

/* All programs do this before they count, and again at their end. */
static __always_inline void end_interval(struct cpu_state *s)
{
	struct common *c;
	if (of_event && !s->making && (c = shared()))
		begin_interval(s, c, *(volatile __u64 *)&c->number);
}

/* How often two CPUs that end intervals at the same time try to tell the later one. */
#define TRIES 8

static __always_inline void tell(struct common *c, __u64 ended)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 number = *(volatile __u64 *)&c->number;
		if (number >= ended ||
		    __sync_val_compare_and_swap(&c->number, number, ended) == number)
			return;
	}
}

/* Count an event that ends intervals. It belongs to the interval that the number of such events
 * before it says, whatever other CPUs have told. */
static __noinline int count_reference(struct cpu_state *s)
{
	struct common *c = shared();
	__u32 making = s->making;
	if (!c || reference_slot >= MAX_SLOTS)
		return 0;
	s->making = 1;
	barrier();
	__u64 total = __sync_fetch_and_add(&c->total, 1) + 1;
	if (!making)
		begin_interval(s, c, (total - 1) / period);
	s->values[reference_slot]++;
	barrier();
	s->making = making;
	if (total % period == 0)
		tell(c, total / period);
	return 0;
}
