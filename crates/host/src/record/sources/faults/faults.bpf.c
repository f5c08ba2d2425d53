/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
COUNT(page_fault_user)
COUNT(page_fault_kernel)
