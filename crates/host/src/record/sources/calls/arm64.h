/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* System calls of arm64. */
#pragma once

/* arch/arm64/include/asm/thread_info.h: the program is a 32-bit one, whose numbers mean other
 * calls. */
#define TIF_32BIT 22

static __always_inline bool is_call_of_32_bits(void)
{
	return bpf_get_current_task_btf()->thread_info.flags >> TIF_32BIT & 1;
}

#define CALL_NUMBER(regs) ((regs)->syscallno)
#define ARGUMENT_1(regs) ((regs)->regs[0])
#define ARGUMENT_2(regs) ((regs)->regs[1])
#define ARGUMENT_3(regs) ((regs)->regs[2])
#define ARGUMENT_4(regs) ((regs)->regs[3])
