package driver

import (
	"regexp"
	"strconv"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"github.com/aliquot-dev/aliquot/node"
)

// attributes are what a request may choose a device by. What is not known of a device is not among them. Where the machine tells of its
// buses elsewhere than in /sys, that is given.
func attributes(d node.Device, machine ...deviceattribute.MachineModifier) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"uuid": {StringValue: &d.UUID}, "simulated": {BoolValue: &d.Simulated}}
	for name, text := range map[resourceapi.QualifiedName]string{
		"model": d.Model, "architecture": d.About.Architecture, "linkDomain": d.About.LinkDomain, "links": d.About.Links,
	} {
		if text != "" && len(text) <= resourceapi.DeviceAttributeMaxValueLength {
			all[name] = resourceapi.DeviceAttribute{StringValue: &text}
		}
	}
	for name, text := range map[resourceapi.QualifiedName]string{"driverVersion": d.About.DriverVersion, "computeCapability": d.About.Capability} {
		if version, ok := semantic(text); ok {
			all[name] = resourceapi.DeviceAttribute{VersionValue: &version}
		}
	}
	if d.About.NUMANode != nil {
		number := int64(*d.About.NUMANode)
		all["numaNode"] = resourceapi.DeviceAttribute{IntValue: &number}
	}
	if pci, err := deviceattribute.GetPCIBusIDAttribute(d.About.PCI); err == nil {
		all[pci.Name] = pci.Value
	}
	if root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(d.About.PCI, machine...); err == nil {
		all[root.Name] = root.Value
	}
	return all
}

// mark is what may stand behind the numbers of a version here.
var mark = regexp.MustCompile(`^-[A-Za-z][0-9A-Za-z-]*$`)

// semantic is a version of up to three numbers and a mark as semver.org has it, so that requests can compare it: 9.0 is 9.0.0, and
// 535.104.05 is 535.104.5.
func semantic(text string) (version string, ok bool) {
	end := strings.IndexByte(text+"-", '-')
	parts := strings.Split(text[:end], ".")
	if len(parts) > 3 || end < len(text) && !mark.MatchString(text[end:]) {
		return "", false
	}
	numbers := [3]string{"0", "0", "0"}
	for i, part := range parts {
		number, err := strconv.ParseUint(part, 10, 63)
		if err != nil {
			return "", false
		}
		numbers[i] = strconv.FormatUint(number, 10)
	}
	return strings.Join(numbers[:], ".") + text[end:], true
}
