# tiny_model.py DIR LAYERS: a tiny Llama with a byte-level BPE tokenizer and a chat template; no weights (the engine makes random ones).
# Needs: pip install tokenizers (vLLM brings it). Trains the tokenizer on the Go sources of this machine.
import json,glob,os,subprocess,sys
from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
t=Tokenizer(models.BPE()); t.pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False); t.decoder=decoders.ByteLevel()
go=subprocess.check_output(['go','env','GOROOT'],text=True).strip(); files=sorted(glob.glob(go+'/src/net/http/*.go'))
t.train(files,trainers.BpeTrainer(vocab_size=4096,special_tokens=["<|bos|>","<|eos|>","<|role|>","<|end|>"],initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
out=sys.argv[1]; layers=int(sys.argv[2]); os.makedirs(out,exist_ok=True)
t.save(out+'/tokenizer.json')
tmpl="{% if tools %}<|role|>tools\n{{ tools | tojson }}<|end|>\n{% endif %}{% for m in messages %}<|role|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% elif m.content %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endif %}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|role|>assistant\n{% endif %}"
json.dump({"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<|bos|>","eos_token":"<|eos|>","model_max_length":131072,"chat_template":tmpl},open(out+'/tokenizer_config.json','w'))
json.dump({"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":256,"intermediate_size":1024,"num_hidden_layers":layers,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":64,"vocab_size":t.get_vocab_size(),"max_position_embeddings":131072,"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":True,"torch_dtype":"bfloat16","bos_token_id":0,"eos_token_id":1,"attention_bias":False,"mlp_bias":False},open(out+'/config.json','w'))
# Tokens of nothing but blanks and punctuation: with these forbidden (logit_bias), a model that writes at random under a JSON grammar comes to an end.
blank=str.maketrans('','',' \t\r\n'); text={i:t.decode([i],skip_special_tokens=False) for i in range(t.get_vocab_size())}
json.dump([i for i,s in text.items() if s!=s.translate(blank) and not any(c.isalnum() for c in s)],open(out+'/blanks.json','w'))
print(t.get_vocab_size())
