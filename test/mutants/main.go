// Command mutants breaks the engine in one place after another and says which of the faults its tests do not see.
//
//	go run ./test/mutants [-sample N] [-seed N] [-only REGEXP] [-keep]
//
// Operators become their neighbours (< and <=, + and -, && and ||, == and !=) and statements are left out, everywhere in the packages of the
// engine. All faults are built into one program, of which each run has one, by its number (package mutated): so a thousand cost one build. What
// no test comes by counts as not seen; what only says whether the rest is right (invariants.go, check.go) is left alone. A fault is seen if a test fails, crashes, or does not end in time: first the scenarios, then all tests of the
// package engine, then those of the package that the fault is in. The list of those not seen, with why where somebody looked, is unseen.txt. Random sequences are those of fixed seeds or drawn anew, as the tests have it.
//
// Mutation testing: R. A. DeMillo, R. J. Lipton, F. G. Sayward, Hints on test data selection, Computer 11 (4), 1978; all mutants in one program:
// R. H. Untch, A. J. Offutt, M. J. Harrold, Mutation analysis using mutant schemata, ISSTA 1993.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"
)

const module = "github.com/aliquot-dev/aliquot"

// goal is how many in a hundred may go unseen.
const goal = 10

func main() {
	sample := flag.Int("sample", 300, "how many mutants are tried, drawn from all; 0: all")
	seed := flag.Uint64("seed", 1, "of the draw")
	only := flag.String("only", "", "mutants whose place or text matches this regular expression")
	limit := flag.Duration("limit", 10*time.Minute, "for the tests of one mutant; what has not ended then is seen")
	keep := flag.Bool("keep", false, "bring the list of those not seen, "+keptFile+", up to date")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pattern, err := regexp.Compile(*only)
	if err == nil && flag.NArg() > 0 {
		err = fmt.Errorf("there are no arguments, but %q", flag.Args())
	}
	if err == nil {
		err = run(ctx, *sample, *seed, pattern, *limit, *keep)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, sample int, seed uint64, only *regexp.Regexp, limit time.Duration, keep bool) error {
	work, err := os.MkdirTemp("", "aliquot-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := runner{work: work, limit: limit, tests: map[string]string{}}
	all, err := r.build(ctx)
	if err != nil {
		return err
	}
	reached, err := r.reached(ctx)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m mutant) bool { return !only.MatchString(m.String()) })
	if sample > 0 && sample < len(chosen) {
		random := rand.New(rand.NewPCG(seed, 0))
		random.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:sample]
		slices.SortFunc(chosen, func(a, b mutant) int { return a.number - b.number })
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s: none of %d mutants", only, len(all))
	}
	var unseen []mutant
	for i, m := range chosen {
		by, err := r.seen(ctx, m, reached[m.number])
		if err != nil {
			return err
		}
		if by == "" {
			unseen = append(unseen, m)
			fmt.Printf("not seen: %v\n", m)
		}
		if (i+1)%25 == 0 {
			fmt.Fprintf(os.Stderr, "%s %d of %d, %d not seen\n", time.Now().Format(time.TimeOnly), i+1, len(chosen), len(unseen))
		}
	}
	if keep {
		k, err := readKept(r.root)
		if err == nil {
			err = k.update(all, chosen, unseen).write(r.root)
		}
		if err != nil {
			return err
		}
	}
	return report(all, chosen, unseen)
}

// report says how many were seen; a share of more than the goal's unseen is an error.
func report(all, chosen, unseen []mutant) error {
	part := 100 * float64(len(unseen)) / float64(len(chosen))
	fmt.Printf("%d of %d mutants were not seen: %.1f %% (goal: at most %d), of %d that there are\n", len(unseen), len(chosen), part, goal, len(all))
	if part > goal {
		return fmt.Errorf("%.1f %% were not seen; write a test that sees those above", part)
	}
	return nil
}
