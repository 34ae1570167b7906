// Texts that a page without a service has in addition, or instead of those of the service.

export const OWN_TEXTS = {
  en: {
    loadingModel: "Loading the model: {done} of {total} MB",
    onlyServed: "Tasks and search need elmokit serve, which runs on your own computer.",
    splitChinese:
      "Your browser splits Chinese text into words; elmokit itself uses jieba, which may split it differently.",
    routes: "Documentation",
    nothingLeaves: "The model runs in your browser, and your texts stay there.",
    unreachable: "A file of this page could not be loaded. Check the network, then try again.",
    refused: "This cannot be computed:",
    failed: "This result cannot be shown.",
    notChinese:
      "This model has read English only. It computes vectors for Chinese too, but they say little about meaning; run elmokit serve with a Chinese model to see its senses.",
    noSoftmax: "This model has no softmax, so it cannot predict words.",
  },
  zh: {
    loadingModel: "正在加载模型：{done} / {total} MB",
    onlyServed: "任务和搜索需要 elmokit serve，它在你自己的电脑上运行。",
    splitChinese: "中文由浏览器分词；elmokit 本身使用 jieba，分词结果可能不同。",
    routes: "文档",
    nothingLeaves: "模型在你的浏览器中运行，文本不会离开这里。",
    unreachable: "页面的一个文件无法加载。请检查网络，然后重试。",
    refused: "无法计算：",
    failed: "无法显示计算结果。",
    notChinese:
      "这个模型只读过英文。它也能为中文计算向量，但这些向量几乎不反映词义；要看中文的词义，请用 elmokit serve 加载中文模型。",
    noSoftmax: "这个模型没有 softmax，不能预测词。",
  },
};
