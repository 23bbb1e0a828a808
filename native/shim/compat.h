/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compat.h: the shim is loaded into programs whose C library may be far older than the one it was built with, so each function
 * that a later glibc gave a new version is bound to its first one, which all of them still carry. A test reads the finished
 * libraries and fails on any version above GLIBC_2.17. Sanitizers put their own functions in between and need the default ones.
 */
#ifndef ALIQUOT_SHIM_COMPAT_H
#define ALIQUOT_SHIM_COMPAT_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(undefined_behavior_sanitizer)
#define ALQ_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALQ_SANITIZED 1
#endif

#ifndef ALQ_SANITIZED
#if defined(__x86_64__)
#define ALQ_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#define ALQ_MEMCPY __asm__(".symver memcpy,memcpy@GLIBC_2.2.5")
#define ALQ_DLINFO __asm__(".symver dlinfo,dlinfo@GLIBC_2.3.3")
#elif defined(__aarch64__)
#define ALQ_OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#define ALQ_MEMCPY ALQ_OLD(memcpy)
#define ALQ_DLINFO ALQ_OLD(dlinfo)
#else
#error "the shim is built for x86-64 and arm64"
#endif

ALQ_OLD(dladdr);
ALQ_OLD(dlclose);
ALQ_OLD(dlerror);
ALQ_OLD(dlopen);
ALQ_OLD(dlsym);
ALQ_OLD(pthread_create);
ALQ_OLD(pthread_setcancelstate);
ALQ_OLD(pthread_sigmask);
ALQ_OLD(pthread_attr_setstacksize);
ALQ_MEMCPY;
ALQ_DLINFO;
#endif

#endif
