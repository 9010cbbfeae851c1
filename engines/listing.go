package engines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

func (p *prober) modelsDue(now time.Time) bool {
	p.e.mu.Lock()
	ready, last := p.e.health.base == Ready && len(p.e.models()) > 0, p.lastModels
	if p.e.modelsHeard.After(last) {
		last = p.e.modelsHeard
	}
	p.e.mu.Unlock()
	return !ready || p.e.wantModels.Load() || p.dueAgain(now, last)
}

// models reads the list. listAlone: there is no health page, so a list that cannot be read is an engine that is not well; otherwise one that serves goes on serving what it listed.
func (p *prober) models(ctx context.Context, sent time.Time, listAlone bool) (verdict, *[]Model) {
	const path = "/v1/models"
	e := p.e
	e.wantModels.Store(false)
	p.lastModels = e.fleet.now()
	p.listed = true
	status, body, err := p.client.get(ctx, path, factsLimit)
	e.mu.Lock()
	serves := e.health.base == Ready && len(e.facts.Models) > 0 && !listAlone
	e.mu.Unlock()
	keep := verdict{kind: probeReady}
	switch {
	case err != nil && !errors.Is(err, errTooBig):
		if serves {
			return keep, nil
		}
		return p.client.judge(err, path, sent), nil
	case status == 401 || status == 403:
		return unauthorized(path, status, e), nil
	case status == 404 || status == 405 || status == 501:
		if len(e.Spec.Models) == 0 {
			return verdict{kind: probeLoading, reason: "it has no /v1/models: name its models in the configuration, or mend the URL"}, nil
		}
		if listAlone {
			return verdict{kind: probeLoading, reason: fmt.Sprintf("neither %s nor /v1/models exists; set its health path, or mend the URL", e.HealthPath)}, nil
		}
		models := configuredModels(e.Spec.Models)
		return keep, &models
	case status != 200 || err != nil:
		if serves {
			return keep, nil
		}
		return verdict{kind: probeLoading, reason: fmt.Sprintf("/v1/models answers %d", status)}, nil
	}
	all, err := readModels(body)
	if err != nil {
		if serves {
			return keep, nil
		}
		return verdict{kind: probeLoading, reason: "/v1/models: " + err.Error()}, nil
	}
	models := restrict(all, e.Spec.Models)
	switch {
	case len(all) == 0:
		return verdict{kind: probeLoading, reason: "it lists no model yet"}, &models
	case len(models) == 0:
		return verdict{kind: probeLoading, reason: fmt.Sprintf("it lists none of the configured models, but %s", someNames(all))}, &models
	}
	return keep, &models
}

func unauthorized(path string, status int, e *Engine) verdict {
	hint := "no key is configured: set api_key_env"
	if e.APIKey != "" {
		hint = "the configured key is not accepted"
	}
	return verdict{kind: probeAuth, reason: fmt.Sprintf("auth: %s answers %d, %s", path, status, hint)}
}

func someNames(models []Model) string {
	names := modelNames(models)
	if len(names) > 5 {
		names = append(slices.Clone(names[:5]), "…")
	}
	return strings.Join(names, ", ")
}

func (e *Engine) setModels(now time.Time, models []Model) Change {
	same := e.facts.ModelsKnown && sameModels(e.facts.Models, models)
	e.facts.ModelsKnown, e.facts.ModelsAt = true, now
	if same {
		return 0
	}
	e.facts.Models = models
	return ModelsChanged
}

// modelsDone wakes those who wait for a fresh list.
func (e *Engine) modelsDone() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.modelsRead)
	e.modelsRead = make(chan struct{})
}
