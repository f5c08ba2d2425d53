/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* System calls of x86. */
#pragma once

/* arch/x86/include/asm/thread_info.h: the task is in a call of the 32-bit interface, whose numbers
 * mean other calls. Calls of x32 have a bit in their number that is beyond the table. */
#define TS_COMPAT 0x0002

static __always_inline bool is_call_of_32_bits(void)
{
	return bpf_get_current_task_btf()->thread_info.status & TS_COMPAT;
}

#define CALL_NUMBER(regs) ((regs)->orig_ax)
#define ARGUMENT_1(regs) ((regs)->di)
#define ARGUMENT_2(regs) ((regs)->si)
#define ARGUMENT_3(regs) ((regs)->dx)
#define ARGUMENT_4(regs) ((regs)->r10)
