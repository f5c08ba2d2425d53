/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The few kernel types that the programs read. CO-RE finds the true offsets on the running kernel,
 * so only the names and types of the members matter here. */
#pragma once

typedef unsigned char __u8;
typedef signed short __s16;
typedef unsigned short __u16;
typedef signed int __s32;
typedef unsigned int __u32;
typedef signed long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

/* include/uapi/linux/bpf.h */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
};
enum { BPF_F_MMAPABLE = 1U << 10 };

struct bpf_perf_event_value {
	__u64 counter;
	__u64 enabled;
	__u64 running;
};

/* arch/ARCH/include/uapi/asm/ptrace.h: the context of a perf_event program starts with it. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs_user {
	__u64 r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8;
	__u64 rax, rcx, rdx, rsi, rdi, orig_rax, rip, cs, eflags, rsp, ss;
};
/* The privilege level of the code segment; the kernel's is 0. */
#define IN_USER_MODE(regs) ((regs).cs & 3)
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs_user {
	__u64 regs[31], sp, pc, pstate;
};
/* The exception level and the stack, PSR_MODE_MASK; EL0t is 0. */
#define IN_USER_MODE(regs) (!((regs).pstate & 0xf))
#else
#error "the registers of this architecture are not known"
#endif
struct bpf_perf_event_data {
	struct pt_regs_user regs;
	__u64 sample_period;
	__u64 addr;
};

/* A program compares an argument of a tracepoint with 0 before it reads through it, although it
 * never is 0: the verifier of Linux 6.12 takes each for maybe 0, later ones those of a module, such
 * as KVM (Linux, tools/testing/selftests/bpf/progs/raw_tp_null_fail.c). */
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	atomic_t live;
};

struct task_struct;
struct mm_struct;

struct rq {
	struct task_struct *curr;
	__u64 prev_steal_time;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct thread_info {
#if defined(__TARGET_ARCH_x86)
	__u32 status;
#else
	unsigned long flags;
#endif
};

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	struct sched_entity se;
	struct signal_struct *signal;
	struct mm_struct *mm;
	__u64 self_exec_id;
};

struct mm_struct___number {
	int mm_lock_seq;
};

struct sequence_counter {
	unsigned int sequence;
};

struct mm_struct___counter {
	struct sequence_counter mm_lock_seq;
};

/* What a program had in its registers when it came into the kernel. */
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
	unsigned long bp, di, si, dx, r10, orig_ax, ip, cs, sp;
#else
	__u64 regs[31];
	int syscallno;
#endif
};

struct vm_operations_struct;
struct file;

struct vm_area_struct {
	unsigned long vm_start;
	unsigned long vm_end;
	unsigned long vm_flags;
	struct vm_operations_struct *vm_ops;
	unsigned long vm_pgoff;
	struct file *vm_file;
};

struct kvm_vcpu {
	int vcpu_id;
};

struct vmcb_control_area {
	__u32 exit_code;
};

struct vmcb_save_area {
	__u8 cpl;
};

struct vmcb {
	struct vmcb_control_area control;
	struct vmcb_save_area save;
};

struct vcpu_svm {
	struct vmcb *vmcb;
};

union vmx_exit_reason {
	__u32 full;
};

struct vcpu_vmx {
	union vmx_exit_reason exit_reason;
};

/* Since Linux 6.15 the reason is in a part that TDX shares. */
struct vcpu_vt___shared {
	union vmx_exit_reason exit_reason;
};

struct vcpu_vmx___shared {
	struct vcpu_vt___shared vt;
};

#pragma clang attribute pop
