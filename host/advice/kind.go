package advice

import (
	"path/filepath"
	"strings"

	"github.com/aliquot-dev/aliquot/api"
)

// Kind is what a workload has in common with others of its user that do the same: its name without the number at its end, or, where the name was made
// up, its program and the first argument that is no flag.
func Kind(spec *api.WorkloadSpec) string {
	if len(spec.Command) > 0 {
		base := ProgramName(spec.Command[0])
		if rest, ok := strings.CutPrefix(spec.Name, base+"-"); ok && rest != "" && strings.Trim(rest, "0123456789abcdef") == "" {
			for _, arg := range spec.Command[1:] {
				if !strings.HasPrefix(arg, "-") {
					return base + " " + filepath.Base(arg)
				}
			}
			return base
		}
	}
	stem := strings.TrimRight(spec.Name, "0123456789")
	if cut, ok := strings.CutSuffix(stem, "-"); ok && stem != spec.Name && cut != "" {
		return cut
	}
	return spec.Name
}

// ProgramName is what names that are made up for a program begin with.
func ProgramName(program string) string {
	base := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		default:
			return '-'
		}
	}, strings.TrimSuffix(filepath.Base(program), filepath.Ext(program)))
	base = strings.Trim(base, "-")
	if len(base) > 40 {
		base = strings.Trim(base[:40], "-")
	}
	if base == "" || base[0] >= '0' && base[0] <= '9' {
		base = "w-" + base
	}
	return strings.TrimSuffix(base, "-")
}
