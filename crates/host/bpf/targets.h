/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which processes are recorded, when not all are. */
#pragma once

/* Count only while a target or a descendant of one runs. */
const volatile bool filter = false;
/* Every process that has a virtual machine run is a target. */
const volatile bool machines = false;

/* PID_MAX_LIMIT, include/linux/threads.h. */
#define MAX_PROCESSES (4 << 20)

/* A bit for each process (tgid) number. It is read at each context switch, for which a hash is
 * too slow. User space sets bits too, so all accesses are atomic. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_PROCESSES / 64);
	__type(key, __u32);
	__type(value, __u64);
} targets SEC(".maps");

static __always_inline bool is_target(__u32 tgid)
{
	__u32 word = tgid / 64;
	volatile __u64 *bits = bpf_map_lookup_elem(&targets, &word);
	return bits && *bits >> (tgid % 64) & 1;
}

static __always_inline void set_target(__u32 tgid, bool target)
{
	__u32 word = tgid / 64;
	__u64 *bits = bpf_map_lookup_elem(&targets, &word);
	if (!bits)
		return;
	if (target)
		__sync_fetch_and_or(bits, 1ULL << (tgid % 64));
	else
		__sync_fetch_and_and(bits, ~(1ULL << (tgid % 64)));
}

/* The queue of a task's CPU; 0 where the kernel keeps it elsewhere. The kernel checks these typed
 * loads itself, so they need no call each. */
static __always_inline struct rq *queue_of(struct task_struct *task)
{
	struct cfs_rq *cfs_rq;
	if (!bpf_core_field_exists(struct sched_entity, cfs_rq) || !bpf_core_field_exists(struct cfs_rq, rq))
		return 0;
	cfs_rq = task->se.cfs_rq;
	return cfs_rq ? cfs_rq->rq : 0;
}
