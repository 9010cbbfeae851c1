package engines

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestListsOfRealEnginesAreRead(t *testing.T) {
	for _, file := range []string{"vllm/models.http", "sglang/models.http"} {
		models, err := readModels(page(t, file))
		if err != nil || len(models) != 1 || models[0].ID != "tiny" || models[0].MaxModelLen != 32768 || models[0].Parent != "" || !json.Valid(models[0].Raw) {
			t.Errorf("%s: %+v, %v", file, models, err)
		}
	}
}

// C170, C171
func TestOddCardsKeepTheRestOfTheList(t *testing.T) {
	models, err := readModels([]byte(`{"data":[{"id":"base","max_model_len":4096},{"id":"ad-1","parent":"base"},{"id":"ad-2","parent":"base","max_model_len":"many","created":null},
		{"object":"model"},{"id":""},{"id":7},null,"x",{"id":"base"},{"id":"llama","meta":{"n_ctx":2048}}]}`))
	if err != nil || fmt.Sprint(modelNames(models)) != "[base ad-1 ad-2 llama]" || models[1].Parent != "base" || models[2].MaxModelLen != 0 || models[3].MaxModelLen != 2048 {
		t.Errorf("%+v, %v", models, err)
	}
	if empty, err := readModels([]byte(`{"object":"list","data":[]}`)); err != nil || len(empty) != 0 {
		t.Errorf("an empty list: %v, %v", empty, err)
	}
	for text, hint := range map[string]string{"<html>hello</html>": "web page", "": "no list", "{}": "no data", `{"data":{}}`: "no list", `[]`: "no list", "null": "no data", `{"data":null}`: "no data"} {
		if models, err := readModels([]byte(text)); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%q is read as %v, %v", text, models, err)
		}
	}
	var many strings.Builder
	many.WriteString(`{"data":[`)
	for i := range 2 * maxModels {
		fmt.Fprintf(&many, `{"id":"m%d"},`, i)
	}
	models, err = readModels([]byte(strings.TrimSuffix(many.String(), ",") + "]}"))
	if err != nil || len(models) != maxModels {
		t.Errorf("%d models, %v", len(models), err)
	}
}
