/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A legacy binary was linked against a libibverbs that had these. Here they
 * come from the preloaded library, and the linker must not ask for them.
 */
#pragma weak ibv_exp_get_device_list
