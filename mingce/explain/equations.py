def judge_equations(text, rollout, lang):
    return []
