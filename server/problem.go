package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aliquot-dev/aliquot/api"
)

// problem is an error as RFC 9457 has it, with the stable code of api.Error.
type problem struct {
	huma.ErrorModel
	Code     string `json:"code" doc:"stable name of the refusal"`
	ExitCode int    `json:"exit_code,omitempty" doc:"126 where a program cannot be run and 127 where it is not there, as in a shell"`
}

// statuses are the HTTP statuses of the codes.
var statuses = map[string]int{
	api.CodeInvalid: http.StatusUnprocessableEntity, api.CodeNotFound: http.StatusNotFound, api.CodeForbidden: http.StatusForbidden,
	api.CodeConflict: http.StatusConflict, api.CodeUnavailable: http.StatusServiceUnavailable,
}

func newProblem(status int, code, detail string) *problem {
	return &problem{ErrorModel: huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}, Code: code}
}

// refusal makes a problem of an error of the host.
func refusal(err error) error {
	var refused *api.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		status, known := statuses[refused.Code]
		if !known {
			status = http.StatusInternalServerError
		}
		answer := newProblem(status, refused.Code, refused.Message)
		answer.ExitCode = refused.ExitCode
		return answer
	case errors.Is(err, context.Canceled):
		return newProblem(http.StatusServiceUnavailable, api.CodeUnavailable, "the server is stopping: ask again when it is back")
	default:
		return newProblem(http.StatusInternalServerError, api.CodeUnavailable, err.Error())
	}
}

// writeProblem writes a problem where no operation has been reached yet.
func writeProblem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(newProblem(status, code, detail))
}

// orProblem answers with a problem where the paths of mux, or their methods, have nothing for a request.
func orProblem(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		// mux knows whether the path or the method is wrong, and says it with headers of its own.
		plain := &discarded{header: w.Header()}
		answer.ServeHTTP(plain, r)
		plain.header.Del("X-Content-Type-Options")
		switch allowed := plain.header.Get("Allow"); {
		case plain.status == http.StatusMethodNotAllowed:
			writeProblem(w, plain.status, api.CodeInvalid, "there is no "+r.Method+" of "+r.URL.Path+", only "+allowed+": GET /openapi.json lists all calls")
		default:
			writeProblem(w, http.StatusNotFound, api.CodeNotFound, "there is nothing at "+r.URL.Path+": GET /openapi.json lists all calls")
		}
	})
}

// discarded takes an answer's status and headers and none of its text.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header            { return d.header }
func (d *discarded) Write(text []byte) (int, error) { return len(text), nil }
func (d *discarded) WriteHeader(status int)         { d.status = status }

// tooLarge begins what encoding/json says of a number that fits in none of its types.
const tooLarge = "json: cannot unmarshal number "

// plain makes one sentence with a code of what huma says of a request that it could not read, and leaves out the request itself,
// which may hold secrets.
func plain(_ huma.Context, _ string, value any) (any, error) {
	model, ok := value.(*huma.ErrorModel)
	if !ok {
		return value, nil
	}
	code := api.CodeInvalid
	for known, status := range statuses {
		if status == model.Status {
			code = known
		}
	}
	detail := model.Detail
	if len(model.Errors) > 0 && model.Errors[0] != nil {
		first := model.Errors[0]
		detail = first.Message
		if where := strings.TrimPrefix(strings.TrimPrefix(first.Location, "body"), "."); where != "" {
			detail = where + ": " + detail
		}
	}
	switch {
	case model.Status == http.StatusUnsupportedMediaType:
		detail += ": send JSON, with the header `Content-Type: application/json`"
	case model.Status == http.StatusRequestEntityTooLarge:
		_, limit, _ := strings.Cut(detail, "limit=")
		detail = fmt.Sprintf("the body has more than %s, which is the most that this call takes; command and environment together may have %d bytes", limit, api.MaxCommandBytes)
	case strings.HasPrefix(detail, "invalid character "), detail == "unexpected end of JSON input":
		detail = "the body is not JSON: " + detail
	case strings.HasPrefix(detail, tooLarge):
		number, _, _ := strings.Cut(strings.TrimPrefix(detail, tooLarge), " ")
		detail = "the body has the number " + number + ", which is larger than any amount there is"
	}
	return newProblem(model.Status, code, detail), nil
}
