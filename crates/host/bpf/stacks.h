/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Unwinds the stacks of programs, by the rows that user space made of `.eh_frame`, where it has made
 * them, else by frame pointers. Frames are files and offsets in them. */
#pragma once

/* Set before loading: rows have stacks. */
const volatile bool with_stacks = false;

#if defined(__TARGET_ARCH_x86)

/* stacks/layout.rs has the same numbers and layouts. */
#define FRAMES 32
#define FILES (1 << 12)
#define UNWIND_ROWS (1 << 21)
#define PATH_BYTES 1024
#define NAME_BYTES 256
/* A frame is the number of its file, which begins at 1, and the offset; 0 is code of no file. A
 * frame of the kernel is its address: the highest number with the address's low bits. */
#define OFFSET_BITS 40
#define STACK_LIMIT (256 << 20)
#define PAGE_SHIFT 12
#define VM_EXEC 0x4
#define DEEPEST_PATH 48
/* arch/x86/include/asm/segment.h: __USER32_CS with its privilege level. */
#define CODE_OF_32_BITS 0x23
#define NODE_WORDS 32
/* include/uapi/linux/bpf.h */
#define BPF_NOEXIST 1

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct qstr {
	const unsigned char *name;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct super_block {
	__u32 s_dev;
};

struct inode {
	struct super_block *i_sb;
	unsigned long i_ino;
};

struct maple_tree {
	void *ma_root;
};

struct mm_struct {
	struct maple_tree mm_mt;
};

struct file {
	struct path f_path;
	struct inode *f_inode;
};

#pragma clang attribute pop

struct site {
	__u32 slot;
	__u32 depth;
	char comm[16];
	__u64 frames[FRAMES];
};

struct file_key {
	__u64 inode;
	__u64 device;
};

struct mapped_file {
	__u32 number;
	/* Its rows in `unwind_rows`; none: they are not made yet, or there are none. */
	__u32 first;
	__u32 rows;
	__u32 path_bytes;
	/* The names of the path, the last first, each with its zero byte. */
	char path[PATH_BYTES + NAME_BYTES];
};

/* How the caller's registers are found from `start` on: what its stack pointer was, and where its
 * frame pointer is saved, in words. */
struct unwind_row {
	__u32 start;
	__u16 base_and_words;
	__s16 saved_bp;
};
#define BASE_SHIFT 14
enum base {
	/* Code of which nothing is said: it may have frame pointers. */
	BASE_NONE = 0,
	BASE_SP = 1,
	BASE_BP = 2,
	/* There is no caller, or it cannot be told so simply. */
	BASE_END = 3,
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, FILES);
	__type(key, struct file_key);
	__type(value, struct mapped_file);
} site_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, UNWIND_ROWS);
	__type(key, __u32);
	__type(value, struct unwind_row);
} site_unwind SEC(".maps");

/* The number of the last file, and calls whose stack found no place. */
struct site_state {
	__u64 files;
	__u64 lost;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct site_state);
} site_state SEC(".maps");

/* A row's stack may be taken in the middle of a call's. */
enum { WALK_OF_CALL, WALK_OF_ROW, WALKS };
struct walk {
	struct site site;
	__u64 ip, sp, bp;
	__u64 node[NODE_WORDS];
	struct mapped_file fresh;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WALKS);
	__type(key, __u32);
	__type(value, struct walk);
} site_walk SEC(".maps");

/* The areas of an address space, since Linux 6.1 (include/linux/maple_tree.h): nodes of 256 bytes,
 * with a word for the parent, pivots, and one slot more than pivots. The low bits of a pointer to a
 * node say its type. */
#define NODE_MASK 255UL
#define NODE_TYPE(entry) ((entry) >> 3 & 15)
#define DEEPEST_TREE 8
enum { MAPLE_RANGE_64 = 2, MAPLE_ARANGE_64 = 3 };

struct descent {
	struct walk *walk;
	__u64 address;
	__u64 entry;
	bool found;
};

static long descend(__u32 level, struct descent *descent)
{
	struct walk *walk = descent->walk;
	__u64 entry = descent->entry, type = NODE_TYPE(entry);
	__u32 pivots = type == MAPLE_ARANGE_64 ? 9 : 15, at = 0;
	if (!walk ||
	    bpf_probe_read_kernel(walk->node, sizeof(walk->node), (void *)(entry & ~NODE_MASK)))
		return 1;
	for (__u32 i = 1; i <= 15 && i <= pivots; i++) {
		/* After the last pivot there are zeros. */
		if (walk->node[i] >= descent->address || (i > 1 && !walk->node[i]))
			break;
		at = i;
	}
	__u32 slot = 1 + pivots + at;
	descent->entry = slot < NODE_WORDS ? walk->node[slot] : 0;
	descent->found = type < MAPLE_RANGE_64;
	return descent->found;
}

/* The area of an address, without the lock: an interrupt must not wait for it, and can take it once
 * only (bpf_find_vma). */
static __always_inline struct vm_area_struct *area_of(struct walk *walk, __u64 address)
{
	struct descent descent = { .walk = walk, .address = address };
	descent.entry = (__u64)BPF_CORE_READ(bpf_get_current_task_btf(), mm, mm_mt.ma_root);
	bpf_loop(DEEPEST_TREE, descend, &descent, 0);
	return descent.found ? (void *)descent.entry : 0;
}

struct code {
	__u64 address;
	__u64 flags;
	__u64 offset;
	struct file *in;
	struct file_key file;
};

static long see_code(struct task_struct *task, struct vm_area_struct *area, struct code *code)
{
	code->flags = BPF_CORE_READ(area, vm_flags);
	struct file *file = BPF_CORE_READ(area, vm_file);
	code->in = file;
	if (!file)
		return 0;
	code->file.inode = BPF_CORE_READ(file, f_inode, i_ino);
	code->file.device = BPF_CORE_READ(file, f_inode, i_sb, s_dev);
	code->offset = code->address - BPF_CORE_READ(area, vm_start) +
		       (BPF_CORE_READ(area, vm_pgoff) << PAGE_SHIFT);
	return 0;
}

static __always_inline void look_at(struct walk *walk, struct code *code)
{
	if (bpf_core_type_exists(struct maple_tree)) {
		struct vm_area_struct *area = area_of(walk, code->address);
		if (area)
			see_code(0, area, code);
	} else {
		bpf_find_vma(bpf_get_current_task_btf(), code->address, see_code, code, 0);
	}
}

static __always_inline void keep_path(struct file *file, struct mapped_file *into)
{
	struct dentry *entry = BPF_CORE_READ(file, f_path.dentry);
	struct mount *mount = (void *)BPF_CORE_READ(file, f_path.mnt) -
			      bpf_core_field_offset(struct mount, mnt);
	__u32 used = 0;
	for (int i = 0; i < DEEPEST_PATH; i++) {
		struct dentry *parent = BPF_CORE_READ(entry, d_parent);
		if (entry == parent || entry == BPF_CORE_READ(mount, mnt.mnt_root)) {
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);
			if (above == mount)
				break;
			entry = BPF_CORE_READ(mount, mnt_mountpoint);
			mount = above;
			continue;
		}
		if (used >= PATH_BYTES)
			break;
		long bytes = bpf_probe_read_kernel_str(into->path + used, NAME_BYTES,
						       BPF_CORE_READ(entry, d_name.name));
		if (bytes <= 0)
			break;
		used += bytes;
		entry = parent;
	}
	into->path_bytes = used;
}

/* The file of code, which becomes known when it is seen first. */
static __always_inline struct mapped_file *file_of(struct code *code, struct mapped_file *fresh)
{
	struct mapped_file *known = bpf_map_lookup_elem(&site_files, &code->file);
	__u32 zero = 0;
	struct site_state *state = bpf_map_lookup_elem(&site_state, &zero);
	if (known || !state)
		return known;
	keep_path(code->in, fresh);
	fresh->number = __sync_fetch_and_add(&state->files, 1) + 1;
	fresh->first = 0;
	fresh->rows = 0;
	bpf_map_update_elem(&site_files, &code->file, fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&site_files, &code->file);
}

struct search {
	__u32 start;
	__u32 low;
	__u32 high;
};

static long halve(__u32 round, struct search *search)
{
	if (search->low + 1 >= search->high)
		return 1;
	__u32 middle = search->low + (search->high - search->low) / 2;
	struct unwind_row *row = bpf_map_lookup_elem(&site_unwind, &middle);
	if (!row)
		return 1;
	if (row->start <= search->start)
		search->low = middle;
	else
		search->high = middle;
	return 0;
}

static __always_inline bool climb_by_pointer(struct walk *walk)
{
	__u64 frame[2];
	if (walk->bp < walk->sp || walk->bp - walk->sp >= STACK_LIMIT || walk->bp & 7)
		return false;
	if (bpf_probe_read_user(frame, sizeof(frame), (void *)walk->bp))
		return false;
	walk->sp = walk->bp + sizeof(frame);
	walk->bp = frame[0];
	walk->ip = frame[1];
	return true;
}

/* From a function's registers to its caller's; false at the end. */
static __always_inline bool climb_by_row(struct walk *walk, struct mapped_file *file, __u64 offset)
{
	struct search search = { offset, file->first, file->first + file->rows };
	bpf_loop(32, halve, &search, 0);
	struct unwind_row *row = bpf_map_lookup_elem(&site_unwind, &search.low);
	if (!row)
		return false;
	__u16 base = row->base_and_words >> BASE_SHIFT;
	__u64 words = row->base_and_words & ((1 << BASE_SHIFT) - 1);
	if (row->start > search.start || base == BASE_NONE)
		return climb_by_pointer(walk);
	if (base == BASE_END)
		return false;
	__u64 above = (base == BASE_SP ? walk->sp : walk->bp) + 8 * words;
	if (row->saved_bp &&
	    bpf_probe_read_user(&walk->bp, 8, (void *)above + 8 * (__s64)row->saved_bp))
		return false;
	if (bpf_probe_read_user(&walk->ip, 8, (void *)above - 8))
		return false;
	bool up = above > walk->sp && above - walk->sp < STACK_LIMIT;
	walk->sp = above;
	return up;
}

struct climb {
	struct walk *walk;
};

static long climb(__u32 depth, struct climb *climb)
{
	struct walk *walk = climb->walk;
	if (!walk || depth >= FRAMES)
		return 1;
	/* Behind a call begins what may be another function. */
	struct code code = { .address = walk->ip - 1 };
	look_at(walk, &code);
	if (!(code.flags & VM_EXEC))
		return 1;
	struct mapped_file *file = code.file.inode ? file_of(&code, &walk->fresh) : 0;
	walk->site.frames[depth] = file ? (__u64)file->number << OFFSET_BITS | code.offset : 0;
	walk->site.depth = depth + 1;
	if (file && file->rows)
		return !climb_by_row(walk, file, code.offset);
	return !climb_by_pointer(walk);
}

struct row_stack {
	__u32 depth;
	__u32 kernel_depth;
	__u64 frames[FRAMES];
	__u64 kernel[FRAMES];
};
_Static_assert(sizeof(struct row_stack) == 520, "stacks/layout.rs: STACK_WORDS");

/* The stack of what the overflow interrupted: the kernel's, and the program's below it. */
static __always_inline void fill_stack(struct row_stack *into, struct bpf_perf_event_data *ctx,
				       bool in_guest)
{
	__u32 key = WALK_OF_ROW;
	struct walk *walk = bpf_map_lookup_elem(&site_walk, &key);
	into->depth = into->kernel_depth = 0;
	if (in_guest || !walk)
		return;
	__u64 segment = ctx->regs.cs;
	walk->ip = ctx->regs.rip;
	walk->sp = ctx->regs.rsp;
	walk->bp = ctx->regs.rbp;
	if (!IN_USER_MODE(ctx->regs)) {
		long bytes = bpf_get_stack(ctx, into->kernel, sizeof(into->kernel), 0);
		into->kernel_depth = bytes > 0 ? (__u32)bytes / 8 : 0;
		struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
		segment = regs->cs;
		walk->ip = regs->ip;
		walk->sp = regs->sp;
		walk->bp = regs->bp;
	}
	/* A thread of the kernel has no program. */
	if (!(segment & 3) || segment == CODE_OF_32_BITS)
		return;
	walk->site.depth = 0;
	/* Not behind a call. */
	walk->ip++;
	struct climb upwards = { .walk = walk };
	bpf_loop(FRAMES, climb, &upwards, 0);
	into->depth = walk->site.depth;
	__builtin_memcpy(into->frames, walk->site.frames, sizeof(into->frames));
}
#else
struct row_stack {
	__u64 none;
};
static __always_inline void fill_stack(struct row_stack *into, struct bpf_perf_event_data *ctx,
				       bool in_guest)
{
}
#endif
