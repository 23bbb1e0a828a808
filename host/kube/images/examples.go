package images

import (
	"fmt"
	"path/filepath"
)

// ExamplesName is what the image of the example programs is called, in deploy/demo.yaml too.
const ExamplesName = "aliquot.dev/aliquot-examples:0.1.0"

// exampleNames are the programs in it, those of examples that need no interpreter.
var exampleNames = []string{"trainer", "notebook", "inference", "hog", "pair", "smi"}

// Examples is the image of the example programs, unmodified and without any driver. folder is where `make examples` put them, dist where `make native`
// put what is mounted into containers: that needs the C library, which any image for GPUs has.
func Examples(folder, dist string) (Image, error) {
	image := Image{Name: ExamplesName}
	for _, name := range exampleNames {
		file := filepath.Join(folder, name)
		if !fileExists(file) {
			return Image{}, fmt.Errorf("make image %s: there is no %s; run make examples", image.Name, file)
		}
		if err := image.AddProgram("/bin/"+name, file, "libcuda.so.1"); err != nil {
			return Image{}, err
		}
	}
	mounted, err := filepath.Glob(filepath.Join(dist, "s*", "*.so.1"))
	if err != nil {
		return Image{}, err
	}
	if len(mounted) == 0 {
		return Image{}, fmt.Errorf("make image %s: there are no libraries in %s; run make native", image.Name, dist)
	}
	for _, file := range mounted {
		if err := image.AddNeeds(file, "libcuda-real.so.1", "libnvidia-ml-real.so.1"); err != nil {
			return Image{}, err
		}
	}
	return image, nil
}
