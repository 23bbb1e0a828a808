package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// doctor keeps what doctor finds. That something is not to its liking is a finding and no failure of this step.
func (s *suite) doctor(ctx context.Context) (figures, error) {
	if s.server == nil {
		return nil, notRun("there is no server: see the first step")
	}
	out, failed := s.aliquot(ctx, "doctor", "-o", "json", "--state", s.server.state())
	var findings any
	if err := json.Unmarshal([]byte(out), &findings); err != nil {
		if failed != nil {
			return nil, failed
		}
		return nil, fmt.Errorf("read what doctor prints: %w", err)
	}
	return figures{"all_well": failed == nil, "findings": findings}, nil
}

func (s *suite) devices(ctx context.Context) (figures, error) {
	out, err := s.aliquot(ctx, "devices", "-o", "json")
	if err != nil {
		return nil, err
	}
	var devices []any
	if err := json.Unmarshal([]byte(out), &devices); err != nil {
		return nil, fmt.Errorf("read what devices prints: %w", err)
	}
	return figures{"count": len(devices), "devices": devices}, nil
}

// runTrue measures what a run of nothing takes under a share and alone.
func (s *suite) runTrue(ctx context.Context) (figures, error) {
	shared, err := s.shared(share{gpu: "0.1", mem: "1Gi"}, "true")
	if err != nil {
		return nil, err
	}
	bare, err := s.bare("true")
	if err != nil {
		return nil, err
	}
	found := figures{}
	for name, l := range map[string]line{"run_true_ms": shared, "true_ms": bare} {
		var took []float64
		for range 10 {
			began := time.Now()
			if _, err := s.output(ctx, l); err != nil {
				return found, err
			}
			took = append(took, time.Since(began).Seconds()*1e3)
		}
		slices.Sort(took)
		found[name] = quantile(took, 0.5)
	}
	return found, nil
}

// nvidiaSMI looks at what nvidia-smi is shown inside a share.
func (s *suite) nvidiaSMI(ctx context.Context) (figures, error) {
	if s.simulate {
		return nil, notRun("simulated: nvidia-smi knows real devices only")
	}
	if _, err := exec.LookPath("nvidia-smi"); err != nil {
		return nil, notRun("there is no nvidia-smi here")
	}
	found := figures{}
	query := []string{"nvidia-smi", "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"}
	bare, err := s.bare(query...)
	if err != nil {
		return nil, err
	}
	if found["bare_mib"], err = s.trimmed(ctx, bare); err != nil {
		return found, err
	}
	under, err := s.shared(share{gpu: "0.1", mem: "4Gi"}, query...)
	if err != nil {
		return found, err
	}
	seen, err := s.trimmed(ctx, under)
	found["under_a_share_of_4096_mib"] = seen
	if err == nil && !strings.HasPrefix(seen, "4096,") {
		err = fmt.Errorf("nvidia-smi under a share of 4096 MiB shows %q", seen)
	}
	return found, err
}

func (s *suite) trimmed(ctx context.Context, l line) (string, error) {
	out, err := s.output(ctx, l)
	return strings.TrimSpace(out), err
}

// hogSaid is the line of examples/hog.
var hogSaid = regexp.MustCompile(`was shown (\d+) MiB free of (\d+); got (\d+) MiB in \d+ blocks, then (\w+) with (\d+) MiB`)

// memoryCeiling lets a program take all it can get of a share of 2 GiB, which may borrow up to 3.
func (s *suite) memoryCeiling(ctx context.Context) (figures, error) {
	l, err := s.shared(share{gpu: "0.1", mem: "2Gi..3Gi"}, s.example("hog"), "--block-mib", "16")
	if err != nil {
		return nil, err
	}
	out, err := s.output(ctx, l)
	if err != nil {
		return nil, err
	}
	return hogFound(out, 3072)
}

// hogFound reads what hog printed and holds it to the ceiling, in MiB.
func hogFound(out string, ceiling float64) (figures, error) {
	words := hogSaid.FindStringSubmatch(out)
	if words == nil {
		return nil, fmt.Errorf("hog printed %q", out)
	}
	number := func(i int) float64 { n, _ := strconv.ParseFloat(words[i], 64); return n } // digits only, by the expression
	found := figures{
		"shown_free_mib": number(1), "shown_total_mib": number(2), "got_mib": number(3), "refused_with": words[4],
		"shown_free_then_mib": number(5), "ceiling_mib": ceiling,
	}
	switch {
	case number(2) != ceiling:
		return found, fmt.Errorf("a share of at most %.0f MiB was shown %.0f", ceiling, number(2))
	case number(3) > ceiling:
		return found, fmt.Errorf("a share of at most %.0f MiB got %.0f", ceiling, number(3))
	case words[4] != "CUDA_ERROR_OUT_OF_MEMORY":
		return found, fmt.Errorf("at its ceiling it was told %s", words[4])
	}
	return found, nil
}

// quantile is the value below which this part (0..1) of the values lies. They are sorted.
func quantile(values []float64, part float64) float64 {
	if len(values) == 0 {
		return 0
	}
	return values[int(float64(len(values)-1)*part+0.5)]
}
