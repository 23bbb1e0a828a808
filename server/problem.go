package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/aliquot-dev/aliquot/api"
)

// problem is an error as RFC 9457 has it, with the stable code of api.Error.
type problem struct {
	huma.ErrorModel
	Code string `json:"code" doc:"stable name of the refusal"`
}

// statuses are the HTTP statuses of the codes.
var statuses = map[string]int{
	api.CodeInvalid: http.StatusUnprocessableEntity, api.CodeNotFound: http.StatusNotFound, api.CodeForbidden: http.StatusForbidden,
	api.CodeConflict: http.StatusConflict, api.CodeUnavailable: http.StatusServiceUnavailable,
}

func newProblem(status int, code, detail string) *problem {
	return &problem{huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}, code}
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
		return newProblem(status, refused.Code, refused.Message)
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
	return newProblem(model.Status, code, detail), nil
}
