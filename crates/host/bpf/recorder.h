/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs keep for each CPU, and the layout that user space knows as row.rs. */
#pragma once

#include "kernel.h"

#define MAX_SLOTS 224
#define MAX_ABSOLUTE 32
#define NO_SLOT 0xffff

enum layer {
	LAYER_HOST_USER = 0,
	LAYER_HOST_KERNEL = 1,
	LAYER_IDLE = 2,
	LAYER_VMM_KERNEL = 3,
	LAYER_GUEST = 4,
	LAYER_GUEST_USER = 5,
	LAYER_GUEST_KERNEL = 6,
};

/* One row; row.rs has the same layout, and its test compares the sizes. Values are cumulative. */
struct row {
	__u64 seq;
	__u64 interval;
	__u64 time_ns;
	__u64 run_ns;
	__u64 enabled_ns;
	__u64 running_ns;
	__u32 cpu;
	__u32 pid;
	__u32 tid;
	__u32 vm;
	__s32 vcpu;
	__u32 layer;
	char comm[16];
	__u64 values[];
};

/* A counter that is read, not counted: a perf event or the kernel's steal clock. */
struct absolute {
	__u64 total;
	__u64 enabled;
	__u64 running;
};

struct cpu_state {
	/* Written by the overflow program only: rows published. */
	__u64 head;
	__u64 pad0[7];
	/* Written by user space only: rows consumed. */
	__u64 tail;
	__u64 pad1[7];
	__u64 seq;
	__u64 dropped;
	/* Time counted up to `since_ns`, which is 0 while nothing is counted. */
	__u64 run_ns;
	__u64 since_ns;
	/* When the CPU entered the guest, or left it for KVM; 0: the CPU is elsewhere. */
	__u64 entry_ns;
	__u64 exit_ns;
	__u32 vm;
	__s32 vcpu;
	/* The last exit was for an interrupt: the interrupted time was the guest's. */
	__u32 interrupted;
	/* A program counts or makes a row, and what interrupts it makes none. */
	__u32 making;
	/* `run_ns` of the last row of targets. */
	__u64 row_ns;
	struct kvm_vcpu *running_vcpu;
	/* Where an event ends the intervals: the interval in which this CPU counts. */
	__u64 number;
	/* The last target's thread, when it has left. */
	__u64 left;
	char left_comm[16];
	struct absolute sum[MAX_ABSOLUTE];
	struct absolute last[MAX_ABSOLUTE];
	__u64 values[MAX_SLOTS];
} __attribute__((aligned(64)));

/* What the CPUs share where an event ends the intervals. */
struct common {
	/* These events of all CPUs. */
	__u64 total;
	__u64 pad0[7];
	/* Intervals that have ended; all CPUs read it at each of their events, so it is not beside what
	 * all write. */
	__u64 number;
	/* Written by user space: make no more rows. */
	__u64 stopped;
	/* Written by user space: the first interval, from 0, that gets no rows any more; 0: each gets
	 * rows. */
	__u64 end;
};

/* ring.rs and row.rs rely on these offsets and sizes. */
_Static_assert(sizeof(struct row) == 88, "row.rs: HEADER_WORDS");
_Static_assert(__builtin_offsetof(struct cpu_state, tail) == 64, "ring.rs: TAIL");
_Static_assert(__builtin_offsetof(struct cpu_state, seq) == 128, "ring.rs: SEQ");
_Static_assert(__builtin_offsetof(struct cpu_state, dropped) == 136, "ring.rs: DROPPED");
_Static_assert(__builtin_offsetof(struct cpu_state, sum) == 240, "ring.rs: SUM");
_Static_assert(__builtin_offsetof(struct cpu_state, values) == 1776, "ring.rs: VALUES");
_Static_assert(sizeof(struct cpu_state) == 3584, "ring.rs: STATE_BYTES");
_Static_assert(__builtin_offsetof(struct common, stopped) == 72, "program.rs: STOPPED");
