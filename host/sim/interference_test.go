package sim

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

const (
	someAlone = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem,label\nA,x,32,0,10,40,3,2048.0,0\nB,y,64,1,20,100.0,3,1000.5,2\nC,z,64,1,20,0.01,3,10,2\n"
	pairHead  = ",model1,dataset1,gpu_num1,batchsize1,amp1,speed1,model2,dataset2,gpu_num2,batchsize2,amp2,speed2,gpu_util,gmem_util,gmem\n"
	somePairs = pairHead + "0,A,x,1,32,0,0.867,B,y,1,64,1,0.775,99,1,1\n"
)

func writeInterference(t *testing.T, alone, pairs string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{aloneFile: alone, "pairs.csv": pairs} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "pairs.csv")
}

// Alone A keeps 0.4 of a device busy and B all of it. Dividing the device equally leaves A the 0.4 that it wants: that it ran at 0.867 beside B is
// the neighbour's doing. B is left 0.6 and ran at 0.775: it kept all.
func TestReadInterference(t *testing.T) {
	x, err := ReadInterference(writeInterference(t, someAlone, somePairs))
	if err != nil {
		t.Fatal(err)
	}
	if p := x.Programs(); len(p) != 3 || p[0] != (Program{"A/x/32/0", 400, 2 << 30}) || p[1].Busy != 1000 || p[2].Busy != 1 {
		t.Errorf("programs are read as %+v", p)
	}
	a, b := x.index("A/x/32/0"), x.index("B/y/64/1")
	if a != 0 || b != 1 || x.index("D") != -1 {
		t.Errorf("they are found at %d, %d and %d", a, b, x.index("D"))
	}
	for _, c := range []struct {
		program, neighbour int
		busy, beside       api.Milli
		want               float64
	}{
		{a, b, 400, 1000, 0.867},
		{b, a, 1000, 400, 1},
		{a, b, 400, 0, 1},               // a neighbour that does nothing
		{a, a, 400, 400, 1 - 0.133*0.4}, // not measured: by the slope of those that keep as much busy
		{-1, -1, 300, 1000, 1 - 0.133},
		{-1, a, 990, 400, 1},
		{2, b, 1, 1000, 1 - 0.133/1.16}, // of such none was measured: by that of all, 0.133 × 1 over 1 + 0.16
	} {
		if got := float64(x.keeps(c.program, c.neighbour, c.busy, c.beside)) / fullSpeed; math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%d beside %d, %d and %d busy, keeps %g, want %g", c.program, c.neighbour, c.busy, c.beside, got, c.want)
		}
	}
}

func TestBrokenInterferenceIsTold(t *testing.T) {
	for _, c := range []struct{ alone, pairs, want string }{
		{someAlone + "D,x,1,0,1,101,1,1,1\n", somePairs, "single_data.csv:5: gpu_util is \"101\": it must be a number from 0 to 100"},
		{someAlone + "D,x,1,0,1,NaN,1,1,1\n", somePairs, "single_data.csv:5: gpu_util is \"NaN\""},
		{someAlone + "D,x,1,0,1,1,1,,1\n", somePairs, "single_data.csv:5: gmem is \"\""},
		{someAlone + "A,x,32,0,10,40,3,2048.0,0\n", somePairs, "single_data.csv:5: program A/x/32/0 is listed twice"},
		{someAlone, somePairs + "1,A,x,1,32,0,-1,B,y,1,64,1,1,99,1,1\n", "pairs.csv:3: speed1 is \"-1\": it must be a number from 0 to 10"},
		{someAlone, somePairs + "1,A,x,1,32,0,1,D,y,1,64,1,1,99,1,1\n", "pairs.csv:3: program D/y/64/1 is not in single_data.csv"},
		{someAlone, "model1\nA\n", "pairs.csv:2: the table has no column speed1"},
		{someAlone, somePairs + "1,A\n", "pairs.csv:3: the count of its fields is 2, and that of the headings 16"},
		{someAlone, pairHead, "pairs.csv has no pairs"},
		{"", somePairs, "single_data.csv: the file is empty"},
	} {
		_, err := ReadInterference(writeInterference(t, c.alone, c.pairs))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
	if _, err := ReadInterference(filepath.Join(t.TempDir(), "pairs.csv")); err == nil {
		t.Error("what is not there is read")
	}
}

// Whatever is read, a program keeps something and never more than all.
func FuzzInterference(f *testing.F) {
	f.Add(someAlone, somePairs)
	f.Add("model,gpu_util,gmem\na,0,0\n", "model1,speed1,model2,speed2\na,0,a,10\n")
	f.Fuzz(func(t *testing.T, alone, pairs string) {
		x := newInterference()
		fit := fitting{of: x}
		if scanTable("alone", strings.NewReader(alone), x.alone) != nil || scanTable("pairs", strings.NewReader(pairs), fit.pair) != nil || fit.done("pairs") != nil {
			return
		}
		for i := -1; i < min(8, len(x.programs)); i++ {
			for k := -1; k < min(8, len(x.programs)); k++ {
				if kept := x.keeps(i, k, 500, 999); kept < 1 || kept > fullSpeed {
					t.Fatalf("%d beside %d keeps %d millionths", i, k, kept)
				}
			}
		}
	})
}
