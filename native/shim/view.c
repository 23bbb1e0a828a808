/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c: what the program sees of the machine: its own devices in the order of its grants, and of each the memory of its share.
 * While the driver initialises, CUDA_VISIBLE_DEVICES holds the UUIDs of these (of those among them that the program's own value of it
 * means), so that the driver counts them as the program does, also where a device's number goes by the shim, as in CUmemLocation.
 * A driver that does not look there is covered all the same: devices are found by their UUID.
 */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	uint32_t count;                 /* ordinals */
	uint32_t grant[ALQ_MAX_GRANTS]; /* of each */
	CUdevice device[ALQ_MAX_GRANTS];
	char *saved;                    /* CUDA_VISIBLE_DEVICES as it was */
} view;

static const char *uuid_of(uint32_t grant)
{
	return task.ctl->grant[grant].device;
}

/* The grant that one item of CUDA_VISIBLE_DEVICES means: an ordinal or the beginning of a UUID; -1: none. */
static int visible_item(const char *item, size_t length)
{
	char text[ALQ_UUID_LEN];
	if (length == 0 || length >= sizeof(text))
		return -1;
	memcpy(text, item, length);
	text[length] = '\0';
	if (strspn(text, "0123456789") == length)
		return length > 3 || atoi(text) >= (int)task.grants ? -1 : atoi(text);
	for (uint32_t g = 0; g < task.grants; g++) {
		if (strncmp(uuid_of(g), text, length) == 0)
			return (int)g;
	}
	return -1;
}

/* As the driver reads it: what comes after an item that is no device, or one that was there before, is not seen. */
static void visible_parse(const char *list)
{
	view.count = 0;
	while (*list != '\0') {
		list += strspn(list, " ");
		size_t length = strcspn(list, ", ");
		int grant = visible_item(list, length);
		for (uint32_t i = 0; i < view.count; i++) {
			if (grant == (int)view.grant[i])
				grant = -1;
		}
		if (grant < 0)
			return;
		view.grant[view.count++] = (uint32_t)grant;
		list += length;
		list += strspn(list, " ");
		if (*list == ',')
			list++;
	}
}

void view_visible_begin(void)
{
	const char *list = getenv("CUDA_VISIBLE_DEVICES");
	char uuids[ALQ_MAX_GRANTS * ALQ_UUID_LEN] = "";
	size_t n = 0;
	view.count = task.grants;
	for (uint32_t g = 0; g < task.grants; g++)
		view.grant[g] = g;
	view.saved = NULL;
	if (list != NULL) {
		view.saved = strdup(list);
		visible_parse(list);
	}
	for (uint32_t i = 0; i < view.count; i++)
		n += (size_t)snprintf(uuids + n, sizeof(uuids) - n, "%s%s", i == 0 ? "" : ",", uuid_of(view.grant[i]));
	setenv("CUDA_VISIBLE_DEVICES", uuids, 1);
}

void view_visible_end(void)
{
	if (view.saved == NULL) {
		unsetenv("CUDA_VISIBLE_DEVICES");
		return;
	}
	setenv("CUDA_VISIBLE_DEVICES", view.saved, 1);
	free(view.saved);
	view.saved = NULL;
}

/* Whether a page's UUID ("GPU-…" or "MIG-…", then hex digits with hyphens) is these 16 bytes. */
static bool uuid_is(const char *text, const CUuuid *uuid)
{
	char hex[33];
	int n = 0;
	const char *p = strchr(text, '-');
	for (p = p == NULL ? text : p; *p != '\0' && n < 32; p++) {
		if (*p != '-')
			hex[n++] = (char)(*p | 0x20);
	}
	for (int i = 0; n == 32 && i < 16; i++) {
		char two[3];
		snprintf(two, sizeof(two), "%02x", (unsigned char)uuid->bytes[i]);
		if ((two[0] | 0x20) != hex[2 * i] || (two[1] | 0x20) != hex[2 * i + 1])
			return false;
	}
	return n == 32;
}

static bool uuid_get(CUuuid *uuid, CUdevice device)
{
	if (driver.cuDeviceGetUuid_v2 != NULL)
		return driver.cuDeviceGetUuid_v2(uuid, device) == CUDA_SUCCESS;
	return driver.cuDeviceGetUuid != NULL && driver.cuDeviceGetUuid(uuid, device) == CUDA_SUCCESS;
}

static bool view_find(uint32_t grant, CUdevice *out)
{
	int count = 0;
	CUuuid uuid;
	driver.cuDeviceGetCount(&count);
	for (int i = 0; i < count; i++) {
		CUdevice device;
		if (driver.cuDeviceGet(&device, i) == CUDA_SUCCESS && uuid_get(&uuid, device) && uuid_is(uuid_of(grant), &uuid)) {
			*out = device;
			return true;
		}
	}
	return false;
}

void view_start(void)
{
	uint32_t found = 0;
	for (uint32_t i = 0; i < view.count; i++) {
		CUdevice device;
		if (!view_find(view.grant[i], &device)) {
			say("the driver does not show the device %s, which this task has a share of; see `aliquot doctor`",
			    uuid_of(view.grant[i]));
			continue;
		}
		view.grant[found] = view.grant[i];
		view.device[found++] = device;
	}
	view.count = found;
}

int view_count(void)
{
	return (int)view.count;
}

CUresult view_device(int ordinal, CUdevice *device)
{
	if (ordinal < 0 || ordinal >= (int)view.count)
		return CUDA_ERROR_INVALID_DEVICE;
	*device = view.device[ordinal];
	return CUDA_SUCCESS;
}

int view_grant(CUdevice device)
{
	for (uint32_t i = 0; i < view.count; i++) {
		if (view.device[i] == device)
			return (int)view.grant[i];
	}
	return -1;
}

bool view_grant_device(uint32_t grant, CUdevice *device)
{
	for (uint32_t i = 0; i < view.count; i++) {
		if (view.grant[i] == grant) {
			*device = view.device[i];
			return true;
		}
	}
	return false;
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	CUresult r = REAL(cuDeviceGetCount, count);
	if (r == CUDA_SUCCESS && task_on())
		*count = view_count();
	return r;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	if (!task_on() || device == NULL)
		return REAL(cuDeviceGet, device, ordinal);
	return view_device(ordinal, device);
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *pci_bus_id)
{
	CUdevice found;
	if (!task_on() || device == NULL)
		return REAL(cuDeviceGetByPCIBusId, device, pci_bus_id);
	CUresult r = REAL(cuDeviceGetByPCIBusId, &found, pci_bus_id);
	if (r == CUDA_SUCCESS && view_grant(found) < 0)
		r = CUDA_ERROR_INVALID_DEVICE;
	if (r == CUDA_SUCCESS)
		*device = found;
	return r;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	CUresult r = REAL(cuDeviceTotalMem_v2, bytes, device);
	int grant = r == CUDA_SUCCESS && task_on() ? view_grant(device) : -1;
	if (grant >= 0) {
		uint64_t free_bytes, total;
		memory_view((uint32_t)grant, &free_bytes, &total);
		*bytes = total < *bytes ? total : *bytes;
	}
	return r;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	CUresult r = REAL(cuMemGetInfo_v2, free_bytes, total_bytes);
	int grant = r == CUDA_SUCCESS && task_on() ? meter_current_grant() : -1;
	if (grant >= 0) {
		uint64_t could, total;
		physicals_settle();
		pieces_trim((uint32_t)grant, false);
		memory_view((uint32_t)grant, &could, &total);
		if (free_bytes != NULL)
			*free_bytes = could < *free_bytes ? could : *free_bytes;
		if (total_bytes != NULL)
			*total_bytes = total < *total_bytes ? total : *total_bytes;
	}
	return r;
}
