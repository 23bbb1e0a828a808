package images

import (
	"fmt"
	"path/filepath"
)

// driverNeeds is what the management library of a node's driver, which the agent loads, was linked against: parts of the C library.
var driverNeeds = []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

// Kube is the image of aliquot-kube: the program, which carries the native parts, and all that it and they were linked against, with the programs that it needs
// beside it. dist is where `make native` put the native parts.
func Kube(name, program, dist string, beside ...string) (Image, error) {
	image := Image{Name: name, Program: []string{"/bin/aliquot-kube"}}
	if err := image.AddProgram("/bin/aliquot-kube", program); err != nil {
		return Image{}, err
	}
	for _, file := range beside {
		if err := image.AddProgram("/bin/"+filepath.Base(file), file); err != nil {
			return Image{}, err
		}
	}
	native, err := filepath.Glob(filepath.Join(dist, "*", "*"))
	if err != nil {
		return Image{}, err
	}
	if len(native) == 0 {
		return Image{}, fmt.Errorf("make image %s: there are no native parts in %s; run make native", name, dist)
	}
	for _, file := range native { // the shim's own names for the driver's libraries are links that the agent makes
		if err := image.AddNeeds(file, "libcuda.so.1", "libcuda-real.so.1", "libnvidia-ml-real.so.1"); err != nil {
			return Image{}, err
		}
	}
	for _, name := range driverNeeds {
		if err := image.addLibrary(name); err != nil {
			return Image{}, err
		}
	}
	return image, nil
}
