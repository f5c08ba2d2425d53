/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Kinds of page faults of programs, by x86's error code and by the mapping around the address. */
#pragma once

/* enum x86_pf_error_code, arch/x86/include/asm/trap_pf.h: the page is there; a write. */
#define PF_PROT (1 << 0)
#define PF_WRITE (1 << 1)
/* include/linux/mm.h */
#define VM_WRITE 0x2
#define VM_ACCESS (0x1 | VM_WRITE | 0x4)
#define VM_SHARED 0x8
/* What find_vma answers where nothing is mapped, include/uapi/asm-generic/errno-base.h. */
#define ENOENT 2
/* How far from its pointer a program may use its stack: what x86-64's ABI allows below, and the
 * usual limit of a stack above. */
#define RED_ZONE 128
#define STACK_BYTES (8 << 20)

/* Whose mapping it is, and after how many changes of all mappings. */
struct owner {
	__u64 memory;
	__u64 execs;
	__u64 process;
	__u64 changes;
};

struct mapping {
	struct owner owner;
	__u64 start;
	__u64 end;
	__u64 flags;
	/* By the kernel's own rule; else it is a file's. */
	__u64 anonymous;
};

/* Mappings seen last, by address. A look at the kernel's own is dear where interrupts are off, as
 * they are at this tracepoint: its lock is only released by an interrupt of the CPU to itself. */
#define SEEN 8
#define SEEN_SHIFT 21
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SEEN);
	__type(key, __u32);
	__type(value, struct mapping);
} mappings SEC(".maps");

/* False before Linux 6.4, which does not count the changes; since 6.13 the count is in a structure of
 * its own. */
static __always_inline bool find_owner(struct owner *owner)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct___number *number = (void *)task->mm;
	struct mm_struct___counter *counter = (void *)task->mm;
	__u32 changes = 0;
	owner->memory = (__u64)task->mm;
	owner->execs = task->self_exec_id;
	owner->process = task->tgid;
	if (bpf_core_field_exists(counter->mm_lock_seq.sequence))
		bpf_core_read(&changes, sizeof(changes), &counter->mm_lock_seq.sequence);
	else if (bpf_core_field_exists(number->mm_lock_seq))
		bpf_core_read(&changes, sizeof(changes), &number->mm_lock_seq);
	else
		return false;
	owner->changes = changes;
	return true;
}

/* Was an address in this mapping, of this program? */
static __always_inline bool is_in(struct mapping *seen, struct owner *owner, __u64 address)
{
	return seen->owner.memory == owner->memory && seen->owner.execs == owner->execs &&
	       seen->owner.process == owner->process && seen->start <= address &&
	       address < seen->end;
}

static long see_mapping(struct task_struct *task, struct vm_area_struct *area,
			struct mapping *mapping)
{
	mapping->start = area->vm_start;
	mapping->end = area->vm_end;
	mapping->flags = area->vm_flags;
	mapping->anonymous = !area->vm_ops;
	return 0;
}

static __always_inline __u16 slot_of_fault(struct mapping *mapping, __u64 error)
{
	bool write = error & PF_WRITE;
	/* A program that may not do this gets a signal and no page. */
	if (!(mapping->flags & (write ? VM_WRITE : VM_ACCESS)))
		return NO_SLOT;
	if (write && (mapping->anonymous ? error & PF_PROT : !(mapping->flags & VM_SHARED)))
		return slot_fault_cow;
	return mapping->anonymous ? slot_fault_anonymous : slot_fault_file;
}

static __always_inline __u16 kind_of_fault(__u64 address, __u64 stack, __u64 error)
{
	/* Anonymous, if that is all that can be known. */
	struct mapping mapping = { .flags = VM_ACCESS, .anonymous = true };
	__u32 index = address >> SEEN_SHIFT & (SEEN - 1);
	struct mapping *seen = bpf_map_lookup_elem(&mappings, &index);
	if (!seen)
		return NO_SLOT;
	bool counted = find_owner(&mapping.owner), inside = is_in(seen, &mapping.owner, address);
	if (inside && counted && seen->owner.changes == mapping.owner.changes)
		return slot_of_fault(seen, error);
	long found =
		bpf_find_vma(bpf_get_current_task_btf(), address, see_mapping, &mapping, 0);
	/* Below the stack nothing is mapped until the program gets there. */
	if (found == -ENOENT && address - (stack - RED_ZONE) < STACK_BYTES)
		return slot_fault_anonymous;
	if (found == -ENOENT)
		return NO_SLOT;
	if (!found)
		*seen = mapping;
	/* Another thread is changing the mappings. */
	return slot_of_fault(found && inside ? seen : &mapping, error);
}
